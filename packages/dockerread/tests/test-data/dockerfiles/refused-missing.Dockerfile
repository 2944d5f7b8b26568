FROM pytorch/pytorch:2.3.1-cuda12.1-cudnn8-runtime
COPY nowhere.txt /app/
COPY figures /app/figures
COPY ../outside /app/outside
ADD https://example.org/a.tar.gz /opt/
ADD data.tar.gz /opt/
RUN pip install -r other.txt
COPY entrypoint.sh /entrypoint.sh
RUN chmod +x /entrypoint.sh
ENTRYPOINT ["/entrypoint.sh"]
