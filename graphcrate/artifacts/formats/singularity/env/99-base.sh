#!/bin/sh
LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/.singularity.d/libs"
if [ -z "${PS1:-}" ]; then
    if [ -n "${APPTAINER_CONTAINER:-}" ]; then PS1="Apptainer> "; else PS1="Singularity> "; fi
fi
export LD_LIBRARY_PATH PS1
