-- Deleted sessions whose usage stays in the sums: one that comes back from an archive is not counted again.
CREATE TABLE deleted_sessions (id TEXT PRIMARY KEY) @strict;
