#!/bin/bash
set -euo pipefail
install() {
  pip install "$1"
}
install einops
while read -r name; do pip install "$name"; done < list.txt
cat <<TEXT
done
TEXT
sudo apt-get install -y graphviz
