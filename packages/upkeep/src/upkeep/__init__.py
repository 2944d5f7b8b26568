"""Keep recipes, facts and committed locks of graphcrate up to date. graphcrate knows nothing of this package.

- `news`: channels are asked for releases (`listings`), new torches measured, variants weighed (`weighing`), each change
  tried in a copy of the checkout (`run`, `staged`), and said (`review`).
- `security`: what is known against locked packages (`advisories`, `against`), the lowest releases that fix it (`fixes`)
  and go with the stack (`pinned`, `renewal`).
- `standing`: where the files of locks are today (`files`, `presence`), and doubts about their lists (`doubts`).
- `catalogue`: pages of all variants with what was measured of them.
- `cli`: the command line, as graphcrate's.
"""
