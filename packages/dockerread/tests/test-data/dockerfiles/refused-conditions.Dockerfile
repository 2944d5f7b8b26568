FROM pytorch/pytorch:2.3.1-cuda12.1-cudnn8-runtime
ARG WITH_DEV=0
RUN if [ "$WITH_DEV" = "1" ]; then pip install pytest; fi
RUN for p in ase rdkit; do pip install $p; done
RUN pip install dscribe || pip install dscribe==1.2
RUN (cd /opt && make install)
RUN pip install torchdrug || true
