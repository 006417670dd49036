#include "base/file_pieces.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

class FilePieces : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_ = fs::path(testing::TempDir()) / ("lockstep-pieces-" + std::to_string(getpid()));
};

// All bytes in their order. The length of pieces is part of a digest that is chained over them.
TEST_F(FilePieces, CutsAFileEveryEightMegabytes) {
  constexpr std::size_t kPiece = std::size_t{8} << 20;
  std::string bytes(kPiece + 3, 'a');
  bytes.replace(kPiece - 1, 4, "bcde");
  write_file_atomic(folder_ / "file", bytes);
  std::string all;
  std::vector<std::size_t> sizes;
  for_file_pieces(folder_ / "file", [&](std::string_view piece) {
    all += piece;
    sizes.push_back(piece.size());
  });
  EXPECT_EQ(sizes, (std::vector<std::size_t>{kPiece, 3}));
  EXPECT_TRUE(all == bytes);
}

TEST_F(FilePieces, HasNoneInAnEmptyFile) {
  write_file_atomic(folder_ / "empty", "");
  for_file_pieces(folder_ / "empty", [](std::string_view) { ADD_FAILURE() << "a piece of nothing"; });
}

TEST_F(FilePieces, RefusesWhatCannotBeRead) {
  for (const fs::path& path : {folder_ / "nowhere", folder_}) {
    try {
      for_file_pieces(path, [](std::string_view) {});
      ADD_FAILURE() << path << " was read";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::io);
      EXPECT_NE(e.message().find("'" + path.string() + "' cannot be read"), std::string::npos) << e.message();
    }
  }
}

}  // namespace
}  // namespace lockstep
