#include "services/cli/up_keys.h"

#include <gmock/gmock.h>

namespace foretoken::cli {
namespace {

using ::testing::HasSubstr;

TEST(UpKeys, AModelsOwnDraftsOverTcpAreRefusedToo) {
  LoadedConfig loaded;
  loaded.config.bus.curve_secret = "/no/key";
  loaded.models["chat"] = loaded.models["code"] = loaded.config;
  loaded.models["code"].bus.draft = {"tcp://127.0.0.1:5601"};
  const auto trouble = key_trouble(loaded);
  ASSERT_TRUE(trouble.has_value());
  EXPECT_THAT(trouble->message, HasSubstr("over tcp://127.0.0.1:5601 every service needs a key"));
}

TEST(UpKeys, WithoutKeysAnyEndpointWillDo) {
  LoadedConfig loaded;
  loaded.config.bus.draft = {"tcp://127.0.0.1:5601"};
  EXPECT_FALSE(key_trouble(loaded).has_value());
}

}  // namespace
}  // namespace foretoken::cli
