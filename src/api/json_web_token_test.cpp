#include "api/json_web_token.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/entropy.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace lockstep {
namespace {

struct TokenFolder {
  std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / ("token-" + hex64(random_bits()));
  TokenFolder() { std::filesystem::create_directories(path); }
  ~TokenFolder() { std::filesystem::remove_all(path); }
  std::filesystem::path key() const { return path / "token-key"; }
};

TEST(JsonWebToken, AnothersTokenUnderTheSameKeyIsOurs) {
  // Made by Python's hmac and base64 under a key of 64 times 'a'.
  const TokenFolder folder;
  write_file_atomic(folder.key(), std::string(64, 'a'));
  chmod(folder.key().c_str(), 0600);
  const TokenSigner signer(folder.key(), 100);
  const std::string token =
      "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJsb2Nrc3RlcCIsInN1YiI6ImFubiIsIm9yZ19pZCI6ImxvY2tzdGVwIiwiaWF0IjoxMDAwLCJleHAiOjExMDB9.FPaP_"
      "tcJeipUHIc6cvbid2QTMF3NxujL-DPijOSbUi4";
  EXPECT_EQ(signer.sign("ann", 1000), token);
  EXPECT_EQ(signer.owner_of(token, 1099), "ann");
}

TEST(JsonWebToken, IsGoodUntilItExpiresAndForItsSignerAlone) {
  const TokenFolder folder, other;
  const TokenSigner signer(folder.key(), 60), again(folder.key(), 60), stranger(other.key(), 60);
  const std::string token = signer.sign("ann", 1000);
  EXPECT_TRUE(TokenSigner::is_token(token));
  EXPECT_EQ(signer.owner_of(token, 1059), "ann");
  EXPECT_EQ(again.owner_of(token, 1059), "ann");  // after a restart
  EXPECT_FALSE(signer.owner_of(token, 1060));
  EXPECT_FALSE(stranger.owner_of(token, 1000));
}

TEST(JsonWebToken, NoCharacterOfItMayChange) {
  const TokenFolder folder;
  const TokenSigner signer(folder.key(), 60);
  const std::string token = signer.sign("ann", 1000);
  for (std::size_t i = 0; i < token.size(); ++i) {
    std::string forged = token;
    forged[i] = forged[i] == 'B' ? 'C' : 'B';
    EXPECT_FALSE(signer.owner_of(forged, 1000)) << i;
  }
  // "alg": "none", and no signature.
  EXPECT_FALSE(signer.owner_of("eyJhbGciOiJub25lIn0" + token.substr(token.find('.'), token.rfind('.') - token.find('.')) + ".", 1000));
  for (const char* none : {"", "eyJ", "eyJ..", "eyJ.eyJ.", "a.b.c"}) EXPECT_FALSE(signer.owner_of(none, 1000)) << none;
}

TEST(JsonWebToken, ItsKeyIsForItsOwnersEyesAlone) {
  const TokenFolder folder;
  const TokenSigner signer(folder.key(), 60);
  struct stat status {};
  ASSERT_EQ(stat(folder.key().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  chmod(folder.key().c_str(), 0640);
  EXPECT_THROW(TokenSigner(folder.key(), 60), Error);
  chmod(folder.key().c_str(), 0600);
  write_file_atomic(folder.key(), "short");
  chmod(folder.key().c_str(), 0600);
  EXPECT_THROW(TokenSigner(folder.key(), 60), Error);
}

}  // namespace
}  // namespace lockstep
