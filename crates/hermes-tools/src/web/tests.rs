mod fake;
mod pages;
mod pictures;
mod searches;
