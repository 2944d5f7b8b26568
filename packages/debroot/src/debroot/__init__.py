"""A Debian root filesystem from a lock: no apt, no debootstrap, no root.

`release` checks what the distribution signed, `lists` reads its lists of packages and chooses, `mirrors` says where
files may be, `deb` reads a package, `install` makes a system of packages with the dpkg that they bring, `normalise`
gives the entries of that tree which are the same on any machine. `contents` finds the package with a file or library.
What fetches files, runs programs in the tree, inflates and reads tars is handed in, or small.
"""
