//! How sure a number is: intervals from subsets of clusters, and sign-flip tests over means of clusters. Knows numbers only.

pub(crate) mod interval;
pub(crate) mod sign_test;

pub(crate) use interval::{ABREAST, CONFIDENCE, ENUMERATED, Estimate, Sums, count, for_subsets};
pub(crate) use sign_test::{PValue, has_verdicts, smallest_p};
