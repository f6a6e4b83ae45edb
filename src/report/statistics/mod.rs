pub(crate) mod interval;
pub(crate) mod sign_test;
