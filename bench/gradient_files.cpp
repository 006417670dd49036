// Times gradient accumulators of a model of SmolLM2-135M's shape to disk and back, against the disk's sequential speed: the same bytes written and
// synced, and read with a cold cache, by plain calls. In turns; medians. The accumulators take 3.2 GB of memory meanwhile.
//   ninja -C build gradient_files && build/bench/gradient_files FOLDER [ROUNDS]
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "model/model.h"
#include "timing.h"
#include "train/gradients.h"

namespace {
using namespace lockstep;
constexpr const char* kShape = R"({
  "model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
  "num_key_value_heads": 3, "head_dim": 64, "max_position_embeddings": 2048, "intermediate_size": 1536, "rms_norm_eps": 1e-5,
  "rope_theta": 100000.0, "tie_word_embeddings": true, "hidden_act": "silu"})";
constexpr std::size_t kBlock = std::size_t{4} << 20;

void require(bool right, const char* what) {
  if (right) return;
  std::perror(what);
  std::exit(1);
}

void sync_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY);
  require(file >= 0 && fsync(file) == 0 && close(file) == 0, path.c_str());
}

// Removes the file's pages from the system's cache.
void forget(const std::string& path) {
  sync_file(path);
  const int file = open(path.c_str(), O_RDONLY);
  require(file >= 0 && posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0, path.c_str());
  close(file);
}

void plain_write(const std::string& path, std::int64_t bytes, const std::vector<char>& block) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666);
  for (std::int64_t left = bytes; left > 0; left -= static_cast<std::int64_t>(kBlock))
    require(write(file, block.data(), static_cast<std::size_t>(std::min<std::int64_t>(left, kBlock))) > 0, "write");
  require(fsync(file) == 0 && close(file) == 0, "fsync");
}

void plain_read(const std::string& path, std::vector<char>& block) {
  const int file = open(path.c_str(), O_RDONLY);
  while (read(file, block.data(), block.size()) > 0) {
  }
  close(file);
}
}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return std::fprintf(stderr, "usage: gradient_files FOLDER [ROUNDS]\n"), 2;
  const std::string folder = arguments[1], ours = folder + "/accumulators", plain = folder + "/plain";
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 5;
  const auto model = make_model(Json::parse(kShape));
  Backend backend({.threads = 1});
  const RankRows rows(backend, model->manifest());
  Gradients gradients(backend, rows, {.accumulate = true, .always_bins = true});
  gradients.open({});
  std::vector<std::int32_t> words(kBlock / 4);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::int32_t>(i * 2654435761u);
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < model->manifest().parameters().size(); ++i) {
    View view = gradients.set()->bins(static_cast<ParameterId>(i));
    bytes += view.size() * view.element_bytes;
    view = view.reshape(1, view.size() * view.element_bytes / 4);
    view.dtype = DType::i32;
    view.element_bytes = 4;
    for (std::int64_t at = 0; at < view.cols; at += static_cast<std::int64_t>(words.size()))
      if (at + static_cast<std::int64_t>(words.size()) <= view.cols)
        backend.stream().write(view.column_range(at, static_cast<std::int64_t>(words.size())), words);
  }
  std::vector<char> block(kBlock, 'x');
  std::vector<double> times[4];
  for (int round = 0; round < rounds; ++round) {
    // Into new files, each when the one before is on the disk and out of memory: the blocks of an old file are given back to some disks one by one.
    unlink(plain.c_str()), unlink(ours.c_str()), sync();
    times[0].push_back(seconds_of([&] { plain_write(plain, bytes, block); }));
    forget(plain);
    times[1].push_back(seconds_of([&] {
      CheckedWriter file(ours);
      gradients.write(file);
      file.commit();
      sync_file(ours);  // a server does not wait for this, plain_write does
    }));
    forget(ours);
    times[2].push_back(seconds_of([&] { plain_read(plain, block); }));
    times[3].push_back(seconds_of([&] {
      CheckedReader file(ours);
      gradients.read(file, nullptr);
      file.finish();
    }));
  }
  const double megabytes = static_cast<double>(bytes) / 1e6;
  const auto line = [&](const char* what, int disk, int own) {
    const double a = megabytes / median(times[disk]), b = megabytes / median(times[own]);
    std::printf("%-6s disk %7.0f MB/s   accumulators %7.0f MB/s   %.2f of it\n", what, a, b, b / a);
  };
  std::printf("%.0f MB of accumulators, %d rounds in turns, medians\n", megabytes, rounds);
  line("write", 0, 1);
  line("read", 2, 3);
  unlink(plain.c_str()), unlink(ours.c_str());
}
