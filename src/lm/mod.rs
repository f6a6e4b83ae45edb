//! The language model as a recurrent network: where its files come from.

pub mod source;
