FROM pytorch/pytorch:2.3.1-cuda12.1-cudnn8-runtime
RUN pip install --no-cache-dir torch_geometric==2.5.3 fastapi uvicorn
COPY mypkg /srv/mypkg
ENV PYTHONPATH=/srv
WORKDIR /srv
EXPOSE 8080
STOPSIGNAL SIGINT
HEALTHCHECK --interval=30s CMD curl -f http://localhost:8080/ || exit 1
CMD ["uvicorn", "mypkg.api:app", "--host", "0.0.0.0", "--port", "8080"]
