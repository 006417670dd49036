// A text of which a token's log-probability in training was another than in sampling, as a file: all that computing both again takes. `train rl` and
// `train distill` write it (runs/difference_folder.h), `lockstep parity --case FILE` reads it (parity/parity_case.h).
//   write_case(folder / "case.json", found); const DifferenceCase again = read_case(folder / "case.json");
// Text and case are one to one: the text of a case that was read is the file's, to the byte. Plain values.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/kept_tokens.h"

namespace lockstep {

struct DifferenceCase {
  static constexpr std::int64_t kVersion = 1;

  // Folders (or a GGUF file), where relative beside the case's file, each with its model_sha256. An adapter stands over the model; empty: none.
  std::string model, model_sha256, adapter, adapter_sha256;
  double mla_norm_eps = 0;
  std::string profile, profile_digest;
  // Of the run: how it was computed there. No bit should depend on it.
  std::string backend, isa, ranks, keep_forward = "off";
  std::int64_t threads = 1;
  std::int64_t step = 1;              // of the run, from 1
  std::uint64_t weights_version = 0;  // that sampled and trained it
  // What the tokens were drawn from.
  float temperature = 1, top_p = 1, min_p = 0;
  std::int32_t top_k = 0;
  std::int64_t shared_prefix = 0;  // first tokens that were declared to be shared in the backward; 0: none
  std::vector<std::int32_t> tokens;
  // Of each trained token: where it stands in `tokens`, ascending, and the bits of its two log-probabilities.
  std::vector<std::int64_t> positions;
  std::vector<std::uint32_t> sampler_bits, trainer_bits;
  std::vector<KeptTokens> kept;  // what each was drawn from; empty: nothing was cut of any

  // The first of them whose two bit patterns differ.
  std::optional<std::size_t> first_different() const;
  bool operator==(const DifferenceCase&) const = default;
};

std::string case_text(const DifferenceCase& one);
// Errors: resource_exhausted for a text that read_case would refuse as too long; io.
void write_case(const std::filesystem::path& path, const DifferenceCase& one);
// Errors: not_found, io, resource_exhausted (a file of more than 256 MiB); corrupt_file with the field, its value and what is allowed, among them a
// number that is not finite; unsupported for another version.
DifferenceCase read_case(const std::filesystem::path& path);
// A path of the case's, from where its file stands.
std::filesystem::path case_path(const std::filesystem::path& file, const std::string& path);

}  // namespace lockstep
