#!/bin/sh
set -eu

# Your working directory is /work inside, and what is written there is yours. The image knows no user of your number, and
# programs ask for a name: torch.compile up to torch 2.12 ends without one.
docker run --rm --shm-size=8g --user "$(id -u):$(id -g)" --env HOME=/tmp --env USER="$(id -un)" \
    --volume "$PWD:/work" --workdir /work --volume /data/ogb:/data \
    pyg:2.3.1 \
    python dna.py
