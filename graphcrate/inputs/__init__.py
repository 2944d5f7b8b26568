"""Everything an image is made of, brought into the cache whole: bases, wheels, toolkits, compiled extensions."""
