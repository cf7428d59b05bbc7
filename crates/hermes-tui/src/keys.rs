//! What keys do: actions, the table of defaults, remapping.
