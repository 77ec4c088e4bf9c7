-- Remove ends that have been delivered.
-- request: ids
command('forget_ended', { 'allow-oom' }, function(_, args)
  begin_line(args)
  forget_ends(request.ids)
  flush()
  return revision
end)
