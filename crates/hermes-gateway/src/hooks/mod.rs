//! Programs of the person that run when something happens.
