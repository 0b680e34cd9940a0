-- An alternate id is never somebody's user id: it gets a prefix wherever stored messages show that it is one.
@convert alternate_ids;
