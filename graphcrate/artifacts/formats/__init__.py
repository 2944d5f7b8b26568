"""Forms of an image other than the layout: the unpacked root file system."""
