# syntax=docker/dockerfile:1.4
FROM pytorch/pytorch:2.3.1-cuda12.1-cudnn8-runtime
RUN <<END
set -e
apt-get update
apt-get install -y graphviz
pip install pyvis
END
COPY <<SETTINGS /etc/mine.conf
a=1
SETTINGS
RUN cat > /opt/x.py <<PY
print(1)
PY
