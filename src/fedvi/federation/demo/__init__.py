"""A whole federation on one machine: real processes, real certificates, random kills, and a clock."""
