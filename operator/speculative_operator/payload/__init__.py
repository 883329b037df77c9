"""Files that run inside serving pods. Each stands alone: it is mounted without the rest of this project."""
