pub(crate) mod table;
