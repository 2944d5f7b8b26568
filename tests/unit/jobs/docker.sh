#!/bin/sh
set -eu

# Your working directory is /work inside, and what is written there is yours.
docker run --rm --gpus 2 --shm-size=8g --user "$(id -u):$(id -g)" --env HOME=/tmp \
    --volume "$PWD:/work" --workdir /work \
    pyg:2.3.1 \
    python dna.py
