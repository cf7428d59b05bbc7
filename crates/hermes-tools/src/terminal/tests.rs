//! The tools, called as the agent calls them.
