FROM mambaorg/micromamba:1.5-jammy-cuda-12.1.1
USER root
COPY --chown=$MAMBA_USER:$MAMBA_USER environment.yml /tmp/env.yaml
RUN micromamba install -y -n base -f /tmp/env.yaml && \
    micromamba clean --all --yes
ARG MAMBA_DOCKERFILE_ACTIVATE=1
RUN python -c 'import torch'
USER $MAMBA_USER
WORKDIR /app
