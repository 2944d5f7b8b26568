"""Pages to look at: a report of an image, a comparison of two, a catalogue. HTML in one file, that asks nobody."""
