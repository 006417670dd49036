// Measures size and speed of the codec of snapshots on a pair of Hugging Face folders: bytes of every codec, and GB of full tensor bytes per second
// of the clock and per processor second (steadier on a machine that others use), each the median of rounds, with and without digests. As publishers and
// replicas do it: tensors are decoded in place, and digests are computed part by part beside the search for changes, or the decoding.
// bench/delta_codec.py makes such a pair and compares with other codecs.
//   ninja -C build delta_codec && build/bench/delta_codec OLD NEW [--rounds 5] [--threads 1]
// Prints one JSON object.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/running_digest.h"
#include "base/thread_pool.h"
#include "sync/element_changes.h"
#include "sync/folder_tensors.h"
#include "sync/tensor_codec.h"

namespace {
using namespace lockstep;

struct Seconds {
  double clock = 0, processor = 0;
};
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}
// `before` each round is not measured.
Seconds median_seconds(
    int rounds, const std::function<void()>& work, const std::function<void()>& before = [] {}) {
  std::vector<double> clock, processor;
  for (int round = 0; round <= rounds; ++round) {
    before();
    const auto begin = std::chrono::steady_clock::now();
    const double used = processor_seconds();
    work();
    if (round == 0) continue;  // memory is touched for the first time
    processor.push_back(processor_seconds() - used);
    clock.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(clock.begin(), clock.end());
  std::sort(processor.begin(), processor.end());
  return {clock[clock.size() / 2], processor[processor.size() / 2]};
}

int run(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: delta_codec OLD NEW [--rounds N] [--threads N]\n");
    return 2;
  }
  int rounds = 5, threads = 1;
  for (int i = 3; i + 1 < argc; i += 2) (std::strcmp(argv[i], "--rounds") == 0 ? rounds : threads) = std::atoi(argv[i + 1]);
  const FolderTensors before(argv[1]), after(argv[2]);
  std::vector<const TensorShape*> list;
  std::vector<std::string> olds, news, decoded;
  for (const TensorShape& tensor : after.list()) list.push_back(&tensor);
  std::stable_sort(list.begin(), list.end(), [](const TensorShape* a, const TensorShape* b) { return a->bytes > b->bytes; });
  double full = 0;
  for (const TensorShape* tensor : list) {
    const TensorShape* old = before.find(tensor->name);
    if (!old || old->bytes != tensor->bytes) fail(ErrorCode::invalid_argument, "tensor '{}' is not in both folders with one shape", tensor->name);
    olds.push_back(before.read(*old));
    news.push_back(after.read(*tensor));
    decoded.emplace_back(tensor->bytes, '\0');
    full += static_cast<double>(tensor->bytes);
  }
  ThreadPool pool(threads);
  const auto each = [&](const std::function<void(std::size_t)>& work) {
    pool.run(static_cast<std::int64_t>(list.size()), [&](std::int64_t i) { work(static_cast<std::size_t>(i)); });
  };
  std::vector<EncodedTensor> encoded(list.size());
  std::atomic<std::size_t> sink{0};  // so that digests are computed
  const auto encode = [&](std::size_t i) { encoded[i] = encode_tensor(list[i]->type, olds[i], news[i]); };
  constexpr std::size_t kPart = std::size_t{128} << 10;
  const auto decode = [&](std::size_t i, bool digests) {
    std::string& words = decoded[i];
    TensorDecoder decoder(encoded[i].codec, list[i]->type, encoded[i].codec == TensorCodec::full ? news[i] : encoded[i].payload, words.size());
    RunningDigest base, result;
    for (std::size_t at = 0; at < words.size(); at += kPart) {
      const std::size_t bytes = std::min(kPart, words.size() - at);
      char* const part = words.data() + at;
      if (digests) base.update(part, bytes);
      decoder.next(part, bytes, part);
      if (digests) result.update(part, bytes);
    }
    decoder.finish();
    if (digests) sink += base.hex().size() + result.hex().size();
  };
  const auto encode_with_digests = [&](std::size_t i) {
    const auto width = static_cast<int>(safetensors_type_bytes(list[i]->type));
    const std::int64_t few = static_cast<std::int64_t>(news[i].size()) / width / kFewChanges;
    RunningDigest base, result;
    ElementChanges changes;
    for (std::size_t at = 0; at < news[i].size(); at += kPart) {
      const std::string_view before_part = std::string_view(olds[i]).substr(at, kPart), part = std::string_view(news[i]).substr(at, kPart);
      base.update(before_part.data(), before_part.size());
      result.update(part.data(), part.size());
      each_difference(width, before_part, part, [&](std::int64_t element, std::uint32_t word) {
        changes.positions.push_back(static_cast<std::int64_t>(at) / width + element);
        changes.words.push_back(word);
      });
    }
    sink += base.hex().size() + result.hex().size();
    const EncodedTensor now =
        std::ssize(changes.positions) <= few ? encode_tensor(list[i]->type, olds[i], changes) : encode_tensor(list[i]->type, olds[i], news[i]);
    if (now.codec != encoded[i].codec || now.payload != encoded[i].payload) fail(ErrorCode::internal, "a tensor has two payloads");
  };
  const auto restore = [&] { decoded = olds; };
  const Seconds encoding = median_seconds(rounds, [&] { each(encode); });
  const Seconds decoding = median_seconds(
      rounds, [&] { each([&](std::size_t i) { decode(i, false); }); }, restore);
  const Seconds encoding_digests = median_seconds(rounds, [&] { each(encode_with_digests); });
  const Seconds decoding_digests = median_seconds(
      rounds, [&] { each([&](std::size_t i) { decode(i, true); }); }, restore);
  if (decoded != news) fail(ErrorCode::internal, "a decoded tensor differs");

  nlohmann::ordered_json json;
  double bytes = 0, changed = 0, elements = 0;
  std::map<std::string, std::int64_t> tensors;
  for (std::size_t i = 0; i < list.size(); ++i) {
    bytes += static_cast<double>(encoded[i].codec == TensorCodec::full ? news[i].size() : encoded[i].payload.size());
    changed += static_cast<double>(std::max<std::int64_t>(encoded[i].changed, 0));
    elements += static_cast<double>(list[i]->bytes) / static_cast<double>(safetensors_type_bytes(list[i]->type));
    ++tensors[std::string(codec_name(encoded[i].codec))];
  }
  json = {{"tensors", tensors},
          {"full_bytes", full},
          {"delta_bytes", bytes},
          {"percent", 100 * bytes / full},
          {"changed_percent", 100 * changed / elements},
          {"bits_a_change", 8 * bytes / changed},
          {"threads", threads}};
  for (const auto& [name, seconds] : {std::pair("encode", encoding), std::pair("decode", decoding), std::pair("encode_digests", encoding_digests),
                                      std::pair("decode_digests", decoding_digests)}) {
    json[std::string(name) + "_gb_s"] = full / seconds.clock / 1e9;
    json[std::string(name) + "_gb_s_a_processor"] = full / seconds.processor / 1e9;
  }
  std::printf("%s\n", json.dump(1).c_str());
  return 0;
}
}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const lockstep::Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
