// What the edge adds to its page: the state of the services as text, and the policy.
#include "services/edge/web_page.h"

#include <gmock/gmock.h>

namespace foretoken::edge {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(WebPage, TheStateHasNamesAsTextWhateverTheyAre) {
  wire::StatusReply status;
  status.ready = true;
  status.services.push_back({.name = "target-0",
                             .state = "ready",
                             .model = "<img src=x onerror=\"a('&')\">",
                             .note = "</noscript>"});
  const std::string html = status_html(status);
  EXPECT_THAT(html, HasSubstr("The services are ready"));
  EXPECT_THAT(html, HasSubstr("&lt;img src=x onerror=&quot;a(&#39;&amp;&#39;)&quot;&gt;"));
  EXPECT_THAT(html, HasSubstr("&lt;/noscript&gt;"));
  EXPECT_THAT(html, Not(HasSubstr("<img")));
}

TEST(WebPage, WithoutAStateItSaysWhy) {
  EXPECT_THAT(status_html(Error{ErrorCode::kUnavailable, "no router at <here>"}),
              HasSubstr("no router at &lt;here&gt;"));
}

TEST(WebPage, TheStateStandsInThePageAndChangesNoDigest) {
  const std::string page = page_with(page_html(), "<p>all well</p>");
  EXPECT_THAT(page, HasSubstr("<p>all well</p>\n</div>\n</noscript>"));
  EXPECT_EQ(page_policy(page), page_policy(page_html()));
  EXPECT_LE(page.size(), 60'000U);
}

TEST(WebPage, ThePolicyLetsNothingInFromElsewhere) {
  const std::string policy = page_policy("<style>a</style><script>b</script>");
  // Digests of "b" and "a", as openssl dgst -sha256 -binary | base64 writes them.
  EXPECT_THAT(policy,
              HasSubstr("script-src 'sha256-PiPoFgA5WUoziU9lZOGxNIu9egCI1CxKy3PurtWcAJ0='"));
  EXPECT_THAT(policy, HasSubstr("style-src 'sha256-ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs='"));
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, Not(HasSubstr("http")));
}

}  // namespace
}  // namespace foretoken::edge
