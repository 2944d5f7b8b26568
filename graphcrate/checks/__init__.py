"""What an image must satisfy, judged from its bytes: runtime contracts and binary audit."""
