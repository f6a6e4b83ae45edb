//! What the tests of several files of a report share.

pub(crate) mod fixture;
