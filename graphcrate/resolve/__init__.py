"""Make a lock of a variant, and bring a lock's files into the cache.

    Source   (channels)   where files are listed: an index, a page of links, a folder; per channel in order
      │ index.Listings    reads its pages
      ▼
    Link     (channels)   one file on one source: address, hash where it is stated, size
      │ offers.Offers     of one torch and CUDA: the newest that fits, or why there is none
      ▼
    Offer    (offers)     a link that was chosen, with project, version and channel
      │ pinning           sizes and hashes that a page leaves out; uv chooses what is not of a channel of its own
      ▼
    Lock     (model)      files by name, size and hash, without addresses
      │ search, fetch     each looked for again, in any source that has the very bytes
      ▼
    the cache

- A stack: `candidates.choose` takes the first candidate of a variant of which `resolver.resolve` can make a lock, with
  `extensions` (a wheel, or a source and what compiles it) and the `base`.
- Packages on top of it: `additions.add` asks uv in turns (`solving`), with what may be a source (`sdists`). Why there
  is no solution is found in data: `obstacles` walks what indexes list and `metadata` requires, `conflicts` says it.
- After that: `foreseen` and `libraries` (what the audit will miss).

`request_sources.Sources` is one request's way to all sources: client, pages read so far, the user's indexes. Nothing is
opened or asked before it is needed.
"""
