// Reads the token files of `lockstep score` and `lockstep grad`: JSON lines {"tokens":[1,5,7]}, optionally with columns of numbers beside the
// tokens ({"tokens":[1,5,7],"weights":[0,1]}). The whole file is checked before anything runs.
//   for (const TokenLine& line : read_token_lines(path, {.vocabulary = 512, .longest = 256})) use(line.tokens);
// Knows no model beyond its bounds. Any thread.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct TokenLine {
  std::int64_t line = 0;  // of the file, from 1
  std::vector<std::int32_t> tokens;
  std::map<std::string, std::vector<double>> columns;  // those that the line has; lists of lists are put end to end
};

struct TokenBounds {
  std::int64_t vocabulary = 0;  // ids are 0 to vocabulary - 1
  std::int64_t shortest = 1, longest = 0;
  std::vector<std::string> columns;  // names that a line may have beside its tokens
};

// Empty lines are passed over. Errors: not_found, io; corrupt_file with the number of the line at fault, the value got and the
// values allowed; also for a file without any sequence.
std::vector<TokenLine> read_token_lines(const std::filesystem::path& path, const TokenBounds& bounds);
// The same over text; `label` stands for the path in messages.
std::vector<TokenLine> parse_token_lines(std::string_view text, std::string_view label, const TokenBounds& bounds);

}  // namespace lockstep
