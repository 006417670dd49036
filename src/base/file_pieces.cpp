#include "base/file_pieces.h"

#include <cstdint>
#include <fstream>
#include <vector>

#include "base/error.h"

namespace lockstep {

void for_file_pieces(const std::filesystem::path& path, const std::function<void(std::string_view)>& take) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(ErrorCode::io, "'{}' cannot be read", path.string());
  std::vector<char> piece(std::size_t{8} << 20);
  std::uint64_t taken = 0;
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())), in.gcount() > 0) {
    const auto bytes = static_cast<std::size_t>(in.gcount());
    take({piece.data(), bytes});
    taken += bytes;
  }
  if (in.bad()) fail(ErrorCode::io, "'{}' cannot be read behind byte {}", path.string(), taken);
}

}  // namespace lockstep
