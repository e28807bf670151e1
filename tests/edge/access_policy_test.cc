// Who may ask: by key, and without keys by the name that a request was sent to and by the page that
// sends it.
#include "services/edge/access_policy.h"

#include <gmock/gmock.h>

#include <fstream>

#include "common/base/result.h"
#include "tests/support/temp_folder.h"

namespace foretoken::edge {
namespace {

using ::testing::HasSubstr;

HttpRequest sent_to(const std::string& host, HttpHeaders more = {}) {
  HttpRequest request{.method = "GET", .path = "/props", .headers = std::move(more)};
  request.headers.emplace_back("Host", host);
  return request;
}

std::string code_of(const std::optional<HttpError>& error) { return error ? error->code : "taken"; }

// Where alice has the key "secret".
EdgeSection with_keys(const test::TempFolder& folder) {
  EdgeSection section;
  section.key_file = (folder.path() / "keys").string();
  // printf %s secret | sha256sum
  std::ofstream(section.key_file)
      << "alice 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n";
  return section;
}

TEST(AccessPolicy, WithoutKeysARequestWasSentToANameOfThisMachine) {
  const AccessPolicy policy(EdgeSection{});
  for (const char* host :
       {"localhost", "LocalHost:8000", "localhost.", "foretoken.localhost:1", "127.0.0.1:8000",
        "127.0.0.1", "[::1]:8000", "[::1]", "192.168.1.7:80", ""})
    EXPECT_EQ(code_of(policy.refusal(sent_to(host), false)), "taken") << host;
  EXPECT_EQ(code_of(policy.refusal(HttpRequest{}, false)), "taken") << "HTTP/1.0 without a host";
  for (const char* host :
       {"evil.example:8000", "evil.example", "localhost.evil.example", "xlocalhost",
        "127.0.0.1.nip.io", "127.0.0.1x", "[::1", "a:b:8000", ":8000:"}) {
    for (const bool is_open : {false, true}) {
      const auto error = policy.refusal(sent_to(host), is_open);
      ASSERT_EQ(code_of(error), "host_not_allowed") << host;
      EXPECT_EQ(error->status, 403U);
      EXPECT_THAT(error->message, HasSubstr("edge.allowed_hosts"));
    }
  }
}

TEST(AccessPolicy, TakesNamesThatTheConfigurationAllows) {
  EdgeSection section;
  section.allowed_hosts = {"Models.example"};
  const AccessPolicy policy(section);
  EXPECT_EQ(code_of(policy.refusal(sent_to("models.example:443"), false)), "taken");
  EXPECT_EQ(code_of(policy.refusal(sent_to("localhost"), false)), "taken");
  EXPECT_EQ(code_of(policy.refusal(sent_to("a.models.example"), false)), "host_not_allowed");
  section.allowed_hosts = {"*"};
  EXPECT_EQ(code_of(AccessPolicy(section).refusal(sent_to("evil.example"), false)), "taken");
}

TEST(AccessPolicy, WithoutKeysAPageOfAStrangerIsRefused) {
  const AccessPolicy policy(EdgeSection{});
  const auto asks = [&](const char* origin, bool is_open) {
    return code_of(policy.refusal(sent_to("localhost", {{"Origin", origin}}), is_open));
  };
  EXPECT_EQ(asks("http://localhost:3000", false), "taken");
  EXPECT_EQ(asks("https://evil.example", false), "origin_not_allowed");
  EXPECT_EQ(asks("https://evil.example", true), "taken");
}

// The page at / sends its questions where it was loaded from. A scheme may be that of a proxy.
TEST(AccessPolicy, WithoutKeysAPageAsksTheNameItWasLoadedFrom) {
  EdgeSection section;
  section.allowed_hosts = {"models.example"};
  const AccessPolicy policy(section);
  const auto asks = [&](const char* origin, const char* host) {
    return code_of(policy.refusal(sent_to(host, {{"Origin", origin}}), false));
  };
  EXPECT_EQ(asks("http://models.example", "models.example"), "taken");
  EXPECT_EQ(asks("https://models.example", "models.example"), "taken");
  EXPECT_EQ(asks("http://models.example:8000", "models.example:8000"), "taken");
  EXPECT_EQ(asks("http://foretoken.localhost:8000", "foretoken.localhost:8000"), "taken");
  for (const char* origin :
       {"http://models.example:3000", "https://a.models.example", "https://evil.example",
        "http://localhost.evil.example", "models.example", "http://", "null"}) {
    EXPECT_EQ(asks(origin, "models.example"), "origin_not_allowed") << origin;
    EXPECT_EQ(asks(origin, ""), "origin_not_allowed") << origin;
  }
  EXPECT_EQ(asks("http://evil.example", "evil.example"), "host_not_allowed");
}

// A page may have its own name lead here.
TEST(AccessPolicy, WhereAnyHostIsAllowedAPageIsNotTheEdgesOwnByItsName) {
  EdgeSection section;
  section.allowed_hosts = {"*"};
  const AccessPolicy policy(section);
  const HttpRequest request =
      sent_to("evil.example:8000", {{"Origin", "http://evil.example:8000"}});
  EXPECT_EQ(code_of(policy.refusal(request, false)), "origin_not_allowed");
}

TEST(AccessPolicy, WithKeysTheKeyAloneCounts) {
  const test::TempFolder folder;
  EdgeSection section = with_keys(folder);
  section.host = "0.0.0.0";
  const AccessPolicy policy(section);
  const HttpRequest with_key = sent_to(
      "any.example", {{"Authorization", "Bearer secret"}, {"Origin", "https://any.example"}});
  EXPECT_EQ(code_of(policy.refusal(with_key, false)), "taken");
  EXPECT_EQ(policy.tenant_of(with_key), "alice");
  EXPECT_EQ(code_of(policy.refusal(sent_to("localhost"), false)), "invalid_api_key");
  EXPECT_EQ(code_of(policy.refusal(sent_to("any.example"), true)), "taken");
}

TEST(AccessPolicy, AKeyIsTakenFromEitherHeader) {
  const test::TempFolder folder;
  const AccessPolicy policy(with_keys(folder));
  const auto tenant_with = [&](HttpHeaders headers) {
    const HttpRequest request = sent_to("localhost", std::move(headers));
    EXPECT_EQ(policy.knows(request), !policy.refusal(request, false));
    return policy.tenant_of(request);
  };
  for (const char* authorization : {"Bearer secret", "bearer secret", "BEARER   secret"})
    EXPECT_EQ(tenant_with({{"Authorization", authorization}}), "alice") << authorization;
  for (const char* authorization : {"secret", "Basic secret", "Bearersecret", "Bearer", "Bearer ",
                                    "Bearer Secret", "Bearer wrong", ""}) {
    EXPECT_EQ(tenant_with({{"Authorization", authorization}}), "") << authorization;
    EXPECT_EQ(tenant_with({{"Authorization", authorization}, {"x-api-key", "secret"}}), "alice")
        << authorization;
  }
  EXPECT_EQ(tenant_with({{"Authorization", "Bearer secret"}, {"x-api-key", "wrong"}}), "alice");
}

TEST(AccessPolicy, ARefusalSaysWhetherThereWasAKey) {
  const test::TempFolder folder;
  const AccessPolicy policy(with_keys(folder));
  const auto message_with = [&](HttpHeaders headers) {
    return policy.refusal(sent_to("localhost", std::move(headers)), false)->message;
  };
  EXPECT_THAT(message_with({{"Authorization", "bearer wrong"}}), HasSubstr("not one of"));
  EXPECT_THAT(message_with({{"x-api-key", "wrong"}}), HasSubstr("not one of"));
  EXPECT_THAT(message_with({}), HasSubstr("a key is needed"));
  EXPECT_THAT(message_with({{"Authorization", "Basic YQ=="}}), HasSubstr("a key is needed"));
}

TEST(AccessPolicy, MetricsOnThisMachineNeedNoKey) {
  const test::TempFolder folder;
  const EdgeSection section = with_keys(folder);
  const HttpRequest local = sent_to("127.0.0.1:8002");
  for (const char* host : {"127.0.0.1", "localhost", "::1"}) {
    const AccessPolicy policy(section, host);
    EXPECT_EQ(code_of(policy.metrics_refusal(local)), "taken") << host;
    EXPECT_EQ(code_of(policy.refusal(local, false)), "invalid_api_key") << host;
    // A page of a stranger has no more rights there than it has without keys.
    EXPECT_EQ(code_of(policy.metrics_refusal(sent_to("evil.example:8002"))), "host_not_allowed");
    EXPECT_EQ(
        code_of(policy.metrics_refusal(sent_to("localhost", {{"Origin", "https://evil.example"}}))),
        "origin_not_allowed");
  }
  const AccessPolicy reachable(section, "0.0.0.0");
  EXPECT_EQ(code_of(reachable.metrics_refusal(local)), "invalid_api_key");
  EXPECT_EQ(code_of(reachable.metrics_refusal(
                sent_to("any.example", {{"Authorization", "Bearer secret"}}))),
            "taken");
}

TEST(AccessPolicy, IsNotOpenToOtherMachinesWithoutKeys) {
  EdgeSection section;
  EXPECT_THROW(AccessPolicy(section, "0.0.0.0"), FatalError);
  EXPECT_NO_THROW(AccessPolicy(section, "127.0.0.1"));
  section.host = "0.0.0.0";
  EXPECT_THROW(AccessPolicy{section}, FatalError);
}

}  // namespace
}  // namespace foretoken::edge
