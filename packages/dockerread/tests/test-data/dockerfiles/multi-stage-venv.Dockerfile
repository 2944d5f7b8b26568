FROM python:3.11-slim AS builder
ENV VIRTUAL_ENV=/opt/venv
RUN python -m venv $VIRTUAL_ENV
ENV PATH="$VIRTUAL_ENV/bin:$PATH"
RUN pip install torch==2.3.1 torch_geometric einops

FROM node:20 AS web
WORKDIR /web
RUN npm install

FROM python:3.11-slim
COPY --from=builder /opt/venv /opt/venv
COPY --from=web /web/dist /srv/web
ENV PATH="/opt/venv/bin:$PATH"
WORKDIR /app
COPY mypkg /app/mypkg
CMD ["python", "-m", "mypkg"]
