"""Pages to look at: a report of an image, a comparison of two. HTML in one file, which loads nothing."""
