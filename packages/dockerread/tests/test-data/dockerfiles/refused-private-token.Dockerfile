FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime
ARG TOKEN
RUN pip install torch_geometric einops
RUN git clone https://oauth2:${TOKEN}@git.example.org/team/secret.git /opt/secret && pip install /opt/secret
COPY train.py /opt/train.py
