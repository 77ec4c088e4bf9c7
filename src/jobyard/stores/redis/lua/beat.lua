-- A worker says that it lives, or goodbye. beat: until (8) seen (8) what it says of itself
-- asks: id, data, till (ms from now; 0 takes it off the list)
command('beat', { 'allow-oom' }, function(_, args)
  begin(args)
  if ask.till <= 0 then
    return call('HDEL', ROOT .. ':workers', ask.id)
  end
  return call('HSET', ROOT .. ':workers', ask.id, pack('>dd', after(ask.till), now) .. ask.data)
end)
