-- What the user of this connection may not do.
-- request: commands: lists of words
-- returns the positions of those that the server denies
command('denied', { 'no-writes' }, function(_, args)
  begin(args)
  local found = {}
  for index, words in ipairs(request.commands) do
    if not redis.acl_check_cmd(unpack(words)) then
      found[#found + 1] = index
    end
  end
  return found
end)
