CREATE TABLE IF NOT EXISTS llama_bench (
  n_prompt INTEGER
);

INSERT INTO llama_bench (n_prompt, n_gen, n_depth, avg_ns, stddev_ns, avg_ts, stddev_ts) VALUES ('0', '128', '0', '1000000000', '14142135', '128.0', '1.8');
