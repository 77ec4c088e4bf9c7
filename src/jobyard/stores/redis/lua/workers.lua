#!lua flags=no-writes
-- What workers said of themselves last (see beat).
-- answers { now, beats }
-- include _base
return { now, call('HVALS', ROOT .. ':workers') }
