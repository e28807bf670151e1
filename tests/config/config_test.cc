#include <gmock/gmock.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/config/check.h"
#include "common/config/describe.h"
#include "common/config/load.h"
#include "common/config/models.h"
#include "common/config/resolve.h"
#include "common/config/schema.h"
#include "tests/support/generated_page.h"

namespace foretoken {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class ConfigTest : public ::testing::Test {
 public:
  ConfigTest() {
    char name[] = "/tmp/foretoken-test-XXXXXX";
    folder_ = ::mkdtemp(name);
  }
  ~ConfigTest() override { std::filesystem::remove_all(folder_); }

 protected:
  std::string write(const std::string& text, const std::string& name = "f.toml") {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  LoadedConfig load(const std::string& toml,
                    std::map<std::string, std::string> environment = {},
                    std::vector<std::string> settings = {}) {
    return load_config({write(toml), std::move(environment), std::move(settings)});
  }

  std::filesystem::path folder_;
};

TEST_F(ConfigTest, TakesDefaultsWithoutAnything) {
  const auto loaded = load_config({std::nullopt, {{"HOME", folder_.string()}}, {}});
  EXPECT_THAT(loaded.errors, IsEmpty());
  EXPECT_EQ(loaded.config.speculation.draft_len, 8u);
  EXPECT_EQ(loaded.origin.at("speculation.draft_len"), "default");
}

TEST_F(ConfigTest, FlagBeatsVariableBeatsFileBeatsDefault) {
  const std::string file = "[speculation]\ndraft_len = 5\nngram_min = 3\nproposer = \"none\"\n";
  const auto loaded = load(
      file, {{"FORETOKEN_SPECULATION_DRAFT_LEN", "6"}, {"FORETOKEN_SPECULATION_NGRAM_MIN", "4"}},
      {"speculation.draft_len=7"});
  EXPECT_THAT(loaded.errors, IsEmpty());
  EXPECT_EQ(loaded.config.speculation.draft_len, 7u);
  EXPECT_EQ(loaded.config.speculation.ngram_min, 4u);
  EXPECT_EQ(loaded.config.speculation.proposer, ProposerKind::kNone);
  EXPECT_EQ(loaded.origin.at("speculation.draft_len"), "flag");
  EXPECT_EQ(loaded.origin.at("speculation.ngram_min"), "environment");
  EXPECT_THAT(loaded.origin.at("speculation.proposer"), HasSubstr("f.toml:4"));
}

TEST_F(ConfigTest, ReadsEveryTypeFromEverySource) {
  const auto loaded =
      load("[model]\nalias = [\"a\", \"b\"]\n[bus]\ninsecure = true\n",
           {{"FORETOKEN_SPECULATION_ADAPTIVE", "false"}, {"FORETOKEN_MODEL_NAME", "x"}},
           {"bus.draft=ipc://a,tcp://127.0.0.1:7"});
  EXPECT_THAT(loaded.errors, IsEmpty());
  EXPECT_THAT(loaded.config.model.alias, ElementsAre("a", "b"));
  EXPECT_TRUE(loaded.config.bus.insecure);
  EXPECT_FALSE(loaded.config.speculation.adaptive);
  EXPECT_EQ(loaded.config.model.name, "x");
  EXPECT_THAT(loaded.config.bus.draft, ElementsAre("ipc://a", "tcp://127.0.0.1:7"));
}

TEST_F(ConfigTest, ReportsEveryErrorWithItsPlace) {
  const auto loaded = load(
      "[speculation]\n"
      "draft_len = 33\n"         // out of range
      "draft_lenn = 3\n"         // mistyped
      "proposer = \"drafts\"\n"  // not on the list
      "adaptive = \"yes\"\n"     // wrong type
      "[limit]\n"                // mistyped section
      "max_running = 4\n"
      "[kv_cache]\n"
      "memory = \"many\"\n"
      "block_tokens = -1\n",
      {{"FORETOKEN_LOG_LEVEL", "loud"}},
      {"bus.router=somewhere", "nonsense", "model.max_model_len=1.5"});
  EXPECT_EQ(loaded.errors.size(), 11u) << ::testing::PrintToString(loaded.errors);
  EXPECT_THAT(loaded.errors,
              Contains(AllOf(HasSubstr("f.toml:2"),
                             HasSubstr("draft_len is 33; it must be from 0 to 32"))));
  EXPECT_THAT(loaded.errors, Contains(AllOf(HasSubstr("f.toml:3"),
                                            HasSubstr("did you mean speculation.draft_len?"))));
  EXPECT_THAT(loaded.errors,
              Contains(AllOf(HasSubstr("f.toml:4"), HasSubstr("did you mean \"draft\"?"))));
  EXPECT_THAT(loaded.errors,
              Contains(AllOf(HasSubstr("f.toml:5"), HasSubstr("must be true or false"))));
  EXPECT_THAT(loaded.errors,
              Contains(AllOf(HasSubstr("f.toml:7"), HasSubstr("did you mean limits?"))));
  EXPECT_THAT(loaded.errors, Contains(AllOf(HasSubstr("f.toml:9"), HasSubstr("60%"))));
  EXPECT_THAT(loaded.errors, Contains(AllOf(HasSubstr("f.toml:10"),
                                            HasSubstr("is -1; it must be from 1 to 256"))));
  EXPECT_THAT(loaded.errors, Contains(AllOf(HasSubstr("FORETOKEN_LOG_LEVEL"), HasSubstr("loud"))));
  EXPECT_THAT(loaded.errors, Contains(HasSubstr("--set bus.router: bus.router is \"somewhere\"")));
  EXPECT_THAT(loaded.errors, Contains(HasSubstr("--set nonsense")));
  EXPECT_THAT(loaded.errors, Contains(HasSubstr("model.max_model_len must be a whole number")));
}

TEST_F(ConfigTest, TakesOneProposerOrAList) {
  const ProposerSet both{ProposerKind::kNgram, ProposerKind::kMemory};
  EXPECT_EQ(load("").config.speculation.proposer,
            (ProposerSet{ProposerKind::kDraft, ProposerKind::kNgram, ProposerKind::kMemory}));
  for (const char* one : {"\"ngram\"", "[\"ngram\"]"})
    EXPECT_EQ(
        load(std::string("[speculation]\nproposer = ") + one + "\n").config.speculation.proposer,
        ProposerKind::kNgram)
        << one;
  EXPECT_EQ(load("[speculation]\nproposer = [\"memory\", \"ngram\"]\n").config.speculation.proposer,
            both);
  for (const char* list : {"memory,ngram", "ngram, memory", "[\"memory\", \"ngram\"]"}) {
    EXPECT_EQ(
        load("", {}, {std::string("speculation.proposer=") + list}).config.speculation.proposer,
        both)
        << list;
    EXPECT_EQ(load("", {{"FORETOKEN_SPECULATION_PROPOSER", list}}).config.speculation.proposer,
              both)
        << list;
  }
  const auto of_models = load(
      "[model.a]\n[model.b]\n[speculation]\nproposer = [\"draft\", \"ngram\"]\n"
      "[speculation.b]\nproposer = [\"ngram\", \"memory\"]\n");
  EXPECT_THAT(of_models.errors, IsEmpty());
  EXPECT_EQ(of_models.models.at("a").speculation.proposer,
            (ProposerSet{ProposerKind::kDraft, ProposerKind::kNgram}));
  EXPECT_EQ(of_models.models.at("b").speculation.proposer, both);
}

TEST_F(ConfigTest, SaysWhatIsWrongWithAListOfProposers) {
  for (const auto& [value, says] :
       {std::pair{"[\"draft\", \"ngrams\"]",
                  "has \"ngrams\" as element 2; it must be one of: draft, ngram, memory, none (did "
                  "you mean \"ngram\"?)"},
        std::pair{"\"default\"", "is \"default\"; it must be one of: draft, ngram, memory, none"},
        std::pair{"[\"prediction\"]", "is \"prediction\"; it must be one of: draft"},
        std::pair{"[]",
                  "is an empty list; it must have one or more of: draft, ngram, memory, none "
                  "(\"none\" alone is plain decoding)"},
        std::pair{"[\"draft\", \"ngram\", \"draft\"]",
                  "has \"draft\" twice, as elements 1 and 3; each may be named once"},
        std::pair{"[\"ngram\", \"none\"]",
                  "has \"none\" as element 2 beside others; it must stand alone"},
        std::pair{"[\"none\", \"ngram\"]",
                  "has \"none\" as element 1 beside others; it must stand alone"},
        std::pair{"7",
                  "must be a string or a list of strings, each one of: draft, ngram, memory, none"},
        std::pair{
            "[\"draft\", 7]",
            "must be a boolean, a number, a string or a list of strings, and its element 2 is "
            "of type integer"},
        std::pair{
            "[[\"draft\"]]",
            "must be a boolean, a number, a string or a list of strings, and its element 1 is "
            "of type array"}})
    EXPECT_THAT(load(std::string("[speculation]\nproposer = ") + value + "\n").errors,
                ElementsAre(HasSubstr(std::string("f.toml:2: speculation.proposer ") + says)))
        << value;
  EXPECT_THAT(load("", {}, {"speculation.proposer=draft,"}).errors,
              ElementsAre(HasSubstr("--set speculation.proposer: speculation.proposer has \"\" as "
                                    "element 2; it must be one of: draft")));
  EXPECT_THAT(load("", {}, {"speculation.proposer="}).errors,
              ElementsAre(HasSubstr("speculation.proposer is an empty list")));
}

TEST_F(ConfigTest, PrintsProposersAsItReadsThem) {
  for (const char* text : {"\"none\"", "\"memory\"", "[\"draft\", \"ngram\"]"}) {
    const auto printed =
        print_config(load(std::string("[speculation]\nproposer = ") + text + "\n"));
    EXPECT_THAT(printed, HasSubstr(std::string("\nproposer = ") + text + " "));
    EXPECT_EQ(
        load(printed).config.speculation.proposer,
        load(std::string("[speculation]\nproposer = ") + text + "\n").config.speculation.proposer);
  }
}

TEST_F(ConfigTest, NamesTheWaysToADraftForAWordThatIsNone) {
  for (const char* good : {"auto", "shared_memory", "zeromq"})
    EXPECT_THAT(load("", {}, {std::string("target.draft_link=") + good}).errors, IsEmpty()) << good;
  EXPECT_THAT(load("", {}, {"target.draft_link=cuda_ipc"}).errors,
              ElementsAre(AllOf(HasSubstr("target.draft_link"), HasSubstr("shared_memory"))));
  EXPECT_THAT(load("", {}, {"target.draft_link=shared_memry"}).errors,
              ElementsAre(HasSubstr("did you mean \"shared_memory\"?")));
}

TEST_F(ConfigTest, RefusesEndpointsThatNoServiceCouldTake) {
  for (const char* key : {"bus.router", "bus.client", "bus.draft"})
    for (const char* bad :
         {"", "router", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:", "tcp://127.0.0.1:0",
          "tcp://127.0.0.1:65536", "tcp://127.0.0.1:x", "tcp://127.0.0.1:-5",
          "tcp://localhost:5555", "tcp://*:5555", "tcp://1.2.3:5555", "tcp://[::1:5555", "ipc://",
          "ipc://@name", "udp://127.0.0.1:5", "http://127.0.0.1:80"})
      EXPECT_THAT(load("", {}, {std::string(key) + "=" + bad}).errors,
                  ElementsAre(HasSubstr(std::string("--set ") + key + ": " + key + " is ")))
          << bad;
  for (const char* bare : {"tcp://::1:5555", "tcp://fd00::1"})
    EXPECT_THAT(load("", {}, {std::string("bus.client=") + bare}).errors,
                ElementsAre(HasSubstr("must be in brackets, as in tcp://[::1]:5555")));
  EXPECT_THAT(
      load("[bus]\ndraft = []\n").errors,
      ElementsAre(HasSubstr("bus.draft is an empty list; it must have at least one endpoint")));
  EXPECT_THAT(load("[bus]\nrouter = \"ipc://" + std::string(200, 'x') + "\"\n").errors,
              ElementsAre(AllOf(HasSubstr("f.toml:2: bus.router"), HasSubstr("at most 107"))));
}

TEST_F(ConfigTest, TakesTheEndpointsThatServicesTake) {
  for (const char* good :
       {"ipc://router", "ipc:///run/foretoken/router", "tcp://127.0.0.1:1", "tcp://10.1.2.3:65535",
        "tcp://127.0.0.1:*", "tcp://[::1]:5555", "tcp://0.0.0.0:5555", "inproc://x"})
    EXPECT_THAT(load("", {}, {std::string("bus.router=") + good}).errors, IsEmpty()) << good;
  EXPECT_THAT(load("", {}, {"bus.draft=ipc://draft-{id},tcp://10.0.0.1:570{id}"}).errors,
              IsEmpty());
}

TEST_F(ConfigTest, RefusesAFractionForAWholeNumber) {
  EXPECT_THAT(load("[limits]\nmax_running = 1.5\n").errors,
              ElementsAre(HasSubstr("must be a whole number")));
  EXPECT_THAT(load("", {}, {"limits.max_running=1.5"}).errors,
              ElementsAre(HasSubstr("must be a whole number")));
  EXPECT_THAT(load("", {}, {"limits.max_running=99999999999999999999"}).errors,
              ElementsAre(HasSubstr("must be a whole number")));
}

TEST_F(ConfigTest, PointsToTheSectionAKeyBelongsTo) {
  EXPECT_THAT(load("[target]\nmax_running = 3\n").errors,
              ElementsAre(HasSubstr("did you mean limits.max_running?")));
}

TEST_F(ConfigTest, AnUnknownSectionNeedsNoKeyToBeOne) {
  EXPECT_THAT(load("[log]\n\n[speculatoin]\n# draft_len = 3\n").errors,
              ElementsAre(AllOf(HasSubstr(":3: unknown section [speculatoin]"),
                                HasSubstr("did you mean speculation?"))));
}

TEST_F(ConfigTest, SaysWhereAFileIsNotToml) {
  EXPECT_THAT(load("[log]\nlevel = \"info\"\nformat = = 3\n").errors,
              ElementsAre(HasSubstr("f.toml:3: not TOML")));
  EXPECT_THAT(load("[log]\nlevel = \"info\"\nlevel = \"info\"\n").errors,
              ElementsAre(HasSubstr("not TOML")));
  EXPECT_THAT(load("loose = 1\n").errors, ElementsAre(HasSubstr("outside a [section]")));
}

TEST_F(ConfigTest, TakesAnEmptyFileAndMissesAMissingOne) {
  EXPECT_THAT(load("").errors, IsEmpty());
  EXPECT_THAT(load_config({(folder_ / "none.toml").string(), {}, {}}).errors,
              ElementsAre(HasSubstr("cannot be read")));
  EXPECT_THAT(load_config({(folder_ / std::string(300, 'x')).string(), {}, {}}).errors,
              ElementsAre(HasSubstr("cannot be read")));
  EXPECT_THAT(
      load_config({std::nullopt, {{"FORETOKEN_CONFIG", (folder_ / "none.toml").string()}}, {}})
          .errors,
      ElementsAre(HasSubstr("cannot be read")));
}

TEST_F(ConfigTest, ChecksWhatNoSingleKeyKnows) {
  EXPECT_THAT(load("[speculation]\nngram_min = 5\nngram_max = 4\n").errors,
              ElementsAre(HasSubstr("above speculation.ngram_max")));
  EXPECT_THAT(load("[limits]\nmax_running = 100\nmax_batch_rows = 50\n").errors,
              ElementsAre(HasSubstr("each sequence needs a row")));
  for (const char* dtype : {"int8", "int4"})
    EXPECT_THAT(
        load("[model]\ndraft = \"self:int4\"\ndtype = \"" + std::string(dtype) + "\"\n").errors,
        ElementsAre(
            HasSubstr("choose a type of 16 bits or more, another draft, or \"\" for none")));
  const auto ranks = [&](const std::string& device, const std::string& rest) {
    return load("[target]\ndevice = \"" + device + "\"\n" + rest).errors;
  };
  EXPECT_THAT(ranks("cuda", "tensor_parallel = 2\n"), IsEmpty());
  EXPECT_THAT(ranks("cuda:3", ""), IsEmpty());
  EXPECT_THAT(ranks("cuda:1,0", "tensor_parallel = 2\n"), IsEmpty());
  EXPECT_THAT(ranks("cuda:1,0", "tensor_parallel = 4\nhostfile = \"/h\"\n"), IsEmpty());
  EXPECT_THAT(ranks("cuda:1,0", "tensor_parallel = 4\n"), IsEmpty());  // nodes of a Slurm job
  for (const char* rest : {"", "tensor_parallel = 1\nhostfile = \"/h\"\n"})
    EXPECT_THAT(ranks("cuda:1,0", rest),
                ElementsAre(AllOf(HasSubstr("target.device is \"cuda:1,0\", 2 devices"),
                                  HasSubstr("each rank takes one"))))
        << rest;
  EXPECT_THAT(load("[bus]\ncurve_secret = \"x\"\n").errors,
              ElementsAre(HasSubstr("bus.curve_peers")));
  EXPECT_THAT(load("[edge]\nallowed_hosts = [\"models.example\", \"*\"]\n").errors, IsEmpty());
  for (const char* host : {"http://models.example", "models.example:443", "a b", ""})
    EXPECT_THAT(load(std::string("[edge]\nallowed_hosts = [\"") + host + "\"]\n").errors,
                ElementsAre(HasSubstr("edge.allowed_hosts has \"" + std::string(host) + "\"")));
}

TEST_F(ConfigTest, AnEmptyHostAndAnEmptyAliasAreRefusedByKeyAndValue) {
  EXPECT_THAT(load("[edge]\nhost = \"\"\n").errors,
              ElementsAre(EndsWith(":2: edge.host is \"\"; it must not be empty")));
  EXPECT_THAT(
      load("[model]\nalias = [\"chat\", \"\"]\n").errors,
      ElementsAre(EndsWith(":2: model.alias has \"\" as element 2; no element may be empty")));
  EXPECT_THAT(load("[model.a]\nalias = [\"\"]\n").errors,
              ElementsAre(HasSubstr("model.a.alias has \"\" as element 1")));
  EXPECT_THAT(load("", {}, {"model.alias=chat,"}).errors,
              ElementsAre(HasSubstr("--set model.alias: model.alias has \"\" as element 2")));
  EXPECT_THAT(load("[edge]\nhost = \"::1\"\n[model]\nalias = []\n").errors, IsEmpty());
}

TEST_F(ConfigTest, TakesALargeBodyWhereThereIsRoomForIt) {
  EXPECT_THAT(load("[edge]\nmax_body_mib = 8\nmax_bodies_mib = 8\n").errors, IsEmpty());
  EXPECT_THAT(
      load("[edge]\nmax_body_mib = 8\nmax_bodies_mib = 4\n").errors,
      ElementsAre(AllOf(HasSubstr("edge.max_body_mib is 8"), HasSubstr("edge.max_bodies_mib, 4"))));
}

TEST_F(ConfigTest, TakesMetricsAtANumericAddressOrAtLocalhost) {
  for (const char* good : {"", "127.0.0.1:8002", "localhost:8002", "[::1]:8002", "0.0.0.0:1"})
    EXPECT_THAT(load("", {}, {std::string("metrics.listen=") + good}).errors, IsEmpty()) << good;
  for (const char* bad : {"8002", ":8002", "127.0.0.1", "127.0.0.1:0", "models.example:8002",
                          "::1:8002", "http://127.0.0.1:8002"})
    EXPECT_THAT(load("", {}, {std::string("metrics.listen=") + bad}).errors,
                ElementsAre(AllOf(HasSubstr(std::string("metrics.listen is \"") + bad),
                                  HasSubstr("127.0.0.1:8002"))))
        << bad;
}

TEST_F(ConfigTest, RecordsPassesOfOneRankOnly) {
  for (const char* name : {"target", "draft"}) {
    const std::string section = name;
    const auto with = [&](const char* record, int n_ranks) {
      return load("[" + section + "]\nrecord = \"" + record +
                  "\"\ntensor_parallel = " + std::to_string(n_ranks) + "\n")
          .errors;
    };
    for (const char* record : {"auto", "on", "off"}) EXPECT_THAT(with(record, 1), IsEmpty());
    for (const char* record : {"auto", "off"}) EXPECT_THAT(with(record, 2), IsEmpty());
    EXPECT_THAT(with("on", 2), ElementsAre(AllOf(HasSubstr(section + ".record is \"on\""),
                                                 HasSubstr(section + ".tensor_parallel is 2"))));
    EXPECT_THAT(with("always", 1), ElementsAre(HasSubstr(section + ".record is \"always\"")));
  }
}

TEST_F(ConfigTest, FindsTheFileInItsPlaces) {
  std::filesystem::create_directories(folder_ / "foretoken");
  std::ofstream(folder_ / "foretoken/foretoken.toml") << "";
  EXPECT_EQ(find_config_file({{"XDG_CONFIG_HOME", folder_.string()}}),
            (folder_ / "foretoken/foretoken.toml").string());
  EXPECT_EQ(find_config_file({{"FORETOKEN_CONFIG", "/x"}, {"XDG_CONFIG_HOME", folder_.string()}}),
            "/x");
}

class ModelsTest : public ConfigTest {
 public:
  static constexpr const char* kTwo =
      "[router]\ndefault_model = \"chat\"\n"
      "[limits]\nmax_running = 8\n"
      "[model.chat]\ntarget = \"/m/chat\"\ndraft = \"/m/chat-draft\"\nalias = [\"gpt\"]\n"
      "targets = 2\n"
      "[model.code]\ntarget = \"/m/code\"\nname = \"org/code-7b\"\ndtype = \"bfloat16\"\n"
      "[target.code]\ndevice = \"cuda:1\"\n"
      "[limits.code]\nmax_running = 4\n";

  LoadedConfig instance(const LoadedConfig& loaded, const std::string& id) {
    const auto one = config_of_instance(loaded, id, "draft");
    EXPECT_TRUE(one.ok()) << one.error().message;
    return one.ok() ? *one : LoadedConfig{};
  }
};

TEST_F(ModelsTest, EachHasItsOwnAndWhatHoldsForAll) {
  const auto loaded = load(kTwo);
  ASSERT_THAT(loaded.errors, IsEmpty());
  ASSERT_EQ(loaded.models.size(), 2u);
  const Config& chat = loaded.models.at("chat");
  EXPECT_EQ(chat.model.target, "/m/chat");
  EXPECT_EQ(chat.model.draft, "/m/chat-draft");
  EXPECT_EQ(served_model_name(chat.model), "chat");
  EXPECT_THAT(chat.model.alias, ElementsAre("gpt"));
  EXPECT_EQ(chat.model.targets, 2u);
  EXPECT_EQ(chat.target.device, "cpu");
  EXPECT_EQ(chat.limits.max_running, 8u);
  const Config& code = loaded.models.at("code");
  EXPECT_EQ(served_model_name(code.model), "org/code-7b");
  EXPECT_EQ(code.model.dtype, "bfloat16");
  EXPECT_EQ(code.model.draft, "");  // the demo draft is not of this target
  EXPECT_EQ(code.target.device, "cuda:1");
  EXPECT_EQ(code.limits.max_running, 4u);
  EXPECT_EQ(loaded.config.limits.max_running, 8u);
}

TEST_F(ModelsTest, TheLimitOfRequestsIsFoundByEachNameOfAModel) {
  const auto loaded = load(kTwo);
  const auto limits = request_limits(loaded);
  ASSERT_EQ(limits.size(), 2u);
  for (const char* name : {"chat", "gpt"})
    EXPECT_EQ(request_limit_of(limits, name), &limits[0]) << name;
  EXPECT_EQ(request_limit_of(limits, "org/code-7b"), &limits[1]);
  for (const char* name : {"code", ""}) EXPECT_EQ(request_limit_of(limits, name), nullptr) << name;
  EXPECT_EQ(limits[0].most, 8u + 256u);
  EXPECT_EQ(limits[1].most, 4u + 256u);
  EXPECT_EQ(most_requests(loaded), 12u + 2 * 256u);
  EXPECT_EQ(most_requests(load("[limits]\nmax_running = 8\n")), 8u + 256u);
}

TEST_F(ModelsTest, AnEmptyTableIsTheDemoPair) {
  const auto loaded = load("[model.demo]\n[model.other]\ntarget = \"/m/other\"\n");
  ASSERT_THAT(loaded.errors, IsEmpty());
  EXPECT_EQ(loaded.models.at("demo").model.target, "demo");
  EXPECT_EQ(loaded.models.at("demo").model.draft, "demo");
}

TEST_F(ModelsTest, AServiceReadsTheConfigurationOfTheModelThatItsIdNames) {
  const auto loaded = load(kTwo);
  for (const char* id : {"code", "code-0", "code-17"}) {
    const auto one = instance(loaded, id);
    EXPECT_THAT(one.models, IsEmpty());
    EXPECT_EQ(one.config.model.target, "/m/code") << id;
    EXPECT_THAT(one.origin.at("target.device"), HasSubstr("f.toml:15"));
    EXPECT_THAT(one.origin.at("router.default_model"), HasSubstr("f.toml:2"));
  }
  for (const char* id : {"0", "chats", "chat-x", "chat-", "-1", "coder-1", "chat-00000"}) {
    const auto none = config_of_instance(loaded, id, "draft");
    ASSERT_FALSE(none.ok()) << id;
    EXPECT_THAT(none.error().message,
                AllOf(HasSubstr("--id is \"" + std::string(id) + "\""),
                      HasSubstr("f.toml has several models"), HasSubstr("there is chat, code")));
  }
  const auto single = load("[model]\ntarget = \"/m/x\"\n");
  for (const char* id : {"0", "chat-1", "east"})
    EXPECT_EQ(instance(single, id).config.model.target, "/m/x");
}

TEST_F(ModelsTest, TheStrongerSourceWinsAndThenTheModelsOwnWord) {
  const std::string file =
      "[model.a]\n[target]\nthreads = 1\ndevice = \"cuda:0\"\n"
      "[target.a]\nthreads = 2\ndevice = \"cuda:1\"\nisa = \"avx2\"\n";
  EXPECT_EQ(load(file).models.at("a").target.threads, 2u);
  const std::map<std::string, std::string> variable = {{"FORETOKEN_TARGET_THREADS", "3"}};
  EXPECT_EQ(load(file, variable).models.at("a").target.threads, 3u);
  EXPECT_EQ(load(file, variable, {"target.a.threads=4"}).models.at("a").target.threads, 4u);
  EXPECT_EQ(
      load(file, {}, {"target.threads=5", "target.a.threads=6"}).models.at("a").target.threads, 6u);
  const auto cpu = load(file, {}, {"target.device=cpu"}).models.at("a").target;
  EXPECT_EQ(cpu.device, "cpu");
  EXPECT_EQ(cpu.isa, "avx2");
}

TEST_F(ModelsTest, FlagsDeclareOnesToo) {
  const auto loaded =
      load("", {}, {"model.a.target=/m/a", "model.b.target=/m/b", "draft.b.threads=3"});
  ASSERT_THAT(loaded.errors, IsEmpty());
  EXPECT_EQ(loaded.models.at("a").model.target, "/m/a");
  EXPECT_EQ(loaded.models.at("b").draft.threads, 3u);
}

TEST_F(ModelsTest, ANameThatMeansTwoModelsIsRefused) {
  const auto clash = [&](const std::string& a, const std::string& b) {
    return load("[model.a]\n" + a + "\n[model.b]\n" + b + "\n").errors;
  };
  const auto means_two = [](const std::string& name) {
    return ElementsAre(AllOf(HasSubstr("the name \"" + name + "\" means two models"),
                             HasSubstr("[model.a]"), HasSubstr("[model.b]")));
  };
  EXPECT_THAT(clash("name = \"x\"", "name = \"x\""), means_two("x"));
  EXPECT_THAT(clash("alias = [\"x\"]", "name = \"x\""), means_two("x"));
  EXPECT_THAT(clash("alias = [\"x\", \"y\"]", "alias = [\"y\"]"), means_two("y"));
  EXPECT_THAT(clash("alias = [\"b\"]", ""), means_two("b"));
  EXPECT_THAT(clash("alias = [\"a\", \"x\", \"x\"]", "alias = [\"y\"]"), IsEmpty());
  EXPECT_THAT(clash("alias = [\"claude-*\"]", "alias = [\"claude-sonnet\"]"),
              means_two("claude-sonnet"));
  EXPECT_THAT(clash("alias = [\"claude-*\"]", "alias = [\"gpt-*\"]"), IsEmpty());
}

TEST_F(ModelsTest, TheDefaultIsOneOfThem) {
  for (const char* good : {"chat", "gpt", "org/code-7b", ""})
    EXPECT_THAT(load(kTwo, {}, {std::string("router.default_model=") + good}).errors, IsEmpty());
  EXPECT_THAT(load(kTwo, {}, {"model.chat.alias=claude-*", "router.default_model=claude-x"}).errors,
              IsEmpty());
  EXPECT_THAT(load(kTwo, {}, {"router.default_model=code-7b"}).errors,
              ElementsAre(AllOf(HasSubstr("is \"code-7b\", which is no model's name or alias"),
                                HasSubstr("there is chat, gpt, org/code-7b"))));
  EXPECT_THAT(load(kTwo, {}, {"model.code.alias=default"}).errors,
              ElementsAre(HasSubstr("[model.code] is called \"default\"")));
  EXPECT_THAT(load(kTwo, {}, {"model.chat.alias=default"}).errors, IsEmpty());
  EXPECT_THAT(load(kTwo, {}, {"model.code.alias=def*"}).errors,
              ElementsAre(HasSubstr("[model.code] is called \"default\"")));
}

TEST_F(ModelsTest, SaysWhatCannotStandInATableOfAModel) {
  const std::string models = "[model.a]\n[model.b]\n";
  EXPECT_THAT(load(models + "[target.c]\nthreads = 1\n").errors,
              ElementsAre(AllOf(HasSubstr("f.toml:3"), HasSubstr("[target.c] is for a model"))));
  EXPECT_THAT(load(models + "[edge.a]\nport = 1\n[limits.b]\ndrain_s = 1\n").errors,
              Contains(AllOf(HasSubstr("f.toml:6"), HasSubstr("limits.drain_s holds for all"))));
  EXPECT_THAT(load(models + "[model]\ntarget = \"x\"\n").errors,
              ElementsAre(AllOf(HasSubstr("f.toml:4: model.target is what each model has"),
                                HasSubstr("as model.a.target"))));
  EXPECT_THAT(load(models, {{"FORETOKEN_MODEL_ALIAS", "x"}}).errors,
              ElementsAre(HasSubstr("FORETOKEN_MODEL_ALIAS: model.alias is what each")));
  EXPECT_THAT(load(models + "[target.b]\nthreds = 1\n").errors,
              ElementsAre(HasSubstr("did you mean target.threads?")));
  EXPECT_THAT(load("[model.a]\nmax_model_len = 1\n").errors,
              ElementsAre(HasSubstr("model a: model.max_model_len is 1")));
  EXPECT_THAT(load("[model.a]\ntargets = 17\n").errors,
              ElementsAre(HasSubstr("f.toml:2: model.a.targets is 17; it must be from 1 to 16")));
  for (const char* bad : {"\"a b\"", "\"\"", "7", "threads", "abcdefghijklmnopqrstuvwxy", "\"-a\""})
    EXPECT_THAT(load(std::string("[model.") + bad + "]\n").errors,
                ElementsAre(HasSubstr("is no name of a model: ")))
        << bad;
  EXPECT_THAT(load("[model.a]\n[model.a-2]\nname = \"x\"\n").errors,
              ElementsAre(HasSubstr("[model.a-2] has the name of service number 2 of [model.a]")));
  EXPECT_THAT(load("[model.name]\ntarget = \"x\"\n").errors,
              ElementsAre(HasSubstr("f.toml:1: model.name must be a boolean")));
}

TEST_F(ModelsTest, DraftsOfAModelHaveEndpointsOfTheirOwn) {
  const auto loaded = load(
      "[model.a]\n[model.b]\n[model.c]\n[model.d]\n"
      "[bus.b]\ndraft = [\"tcp://10.0.0.1:1\", \"tcp://10.0.0.1:2\"]\n"
      "[bus.c]\ndraft = [\"tcp://10.0.0.1:3\"]\n"
      "[bus.d]\ndraft = [\"tcp://10.0.0.1:4\", \"ipc:///x/draft-{id}\"]\n");
  ASSERT_THAT(loaded.errors, IsEmpty());
  const auto endpoint = [&](const std::string& id) {
    BusSection bus = instance(loaded, id).config.bus;
    bus.runtime_dir = folder_.string();
    return draft_endpoint(bus, id);
  };
  EXPECT_EQ(endpoint("a-0"), "ipc://" + folder_.string() + "/draft-a-0");
  EXPECT_EQ(endpoint("a"), "ipc://" + folder_.string() + "/draft-a");
  EXPECT_EQ(endpoint("b-0"), "tcp://10.0.0.1:1");
  EXPECT_EQ(endpoint("b-1"), "tcp://10.0.0.1:2");
  EXPECT_EQ(endpoint("c-0"), "tcp://10.0.0.1:3");
  EXPECT_EQ(endpoint("d-0"), "tcp://10.0.0.1:4");
  EXPECT_EQ(endpoint("d-2"), "ipc:///x/draft-d-2");
  for (const auto& [id, why] :
       {std::pair{"b-2", "number 2 from 0, and bus.b.draft has 2 entries"},
        std::pair{"c-1", "number 1 from 0, and bus.c.draft has 1 entries"}}) {
    const auto beyond = config_of_instance(loaded, id, "draft");
    ASSERT_FALSE(beyond.ok()) << id;
    EXPECT_THAT(beyond.error().message, HasSubstr(why));
    EXPECT_TRUE(config_of_instance(loaded, id, "target").ok()) << "it has no endpoint of its own";
  }
}

TEST_F(ModelsTest, ArePrintedAsTheyWouldBeRead) {
  const auto first = load(kTwo, {}, {"kv_cache.code.memory=2GiB", "draft.threads=3"});
  ASSERT_THAT(first.errors, IsEmpty());
  const std::string text = print_config(first);
  const auto second = load(text);
  ASSERT_THAT(second.errors, IsEmpty()) << text;
  EXPECT_EQ(second.models.at("code").kv_cache.memory, "2GiB");
  EXPECT_EQ(second.models.at("chat").kv_cache.memory, "60%");
  EXPECT_EQ(second.models.at("chat").draft.threads, 3u);
  EXPECT_EQ(second.models.at("code").model.draft, "");
  EXPECT_EQ(print_config(load(print_config(second))).size(), print_config(second).size());
}

TEST_F(ModelsTest, HaveIdsForTheirServices) {
  const auto models = [](const LoadedConfig& loaded) {
    std::vector<std::string> ids;
    for (const auto& model : models_of(loaded)) ids.push_back(model.id(1));
    return ids;
  };
  EXPECT_THAT(models(load(kTwo)), ElementsAre("chat-1", "code-1"));
  EXPECT_THAT(models(load("")), ElementsAre("1"));
}

TEST_F(ModelsTest, HaveAMemoryOfTextsThatTheIdNames) {
  const auto loaded = load(kTwo, {}, {"memory.start=true", "memory.code.share=off"});
  ASSERT_THAT(loaded.errors, IsEmpty());
  EXPECT_EQ(models_of(loaded)[1].memory_id(), "code-memory");
  EXPECT_EQ(models_of(load(""))[0].memory_id(), "memory");
  const auto code = config_of_instance(loaded, "code-memory", "draft");
  ASSERT_TRUE(code.ok()) << code.error().message;
  EXPECT_EQ(code->config.memory.share, "off");
  EXPECT_EQ(code->config.model.target, loaded.models.at("code").model.target);
  EXPECT_EQ(config_of_instance(loaded, "chat-memory", "draft")->config.memory.share, "tenant");
  EXPECT_FALSE(config_of_instance(loaded, "chat-memory", "target").ok()) << "only drafts are one";
}

TEST_F(ModelsTest, HaveNoMemoryOfTextsWithoutAnEndpointNameAndFolder) {
  const auto errors = [&](std::vector<std::string> settings) {
    settings.push_back("memory.start=true");
    return load(kTwo, {}, settings).errors;
  };
  EXPECT_THAT(errors({"memory.folder=/x"}),
              ElementsAre(HasSubstr("memory.folder is \"/x\" for the memories of [model.chat] and "
                                    "[model.code]")));
  EXPECT_THAT(errors({"memory.folder=/x", "memory.code.folder=/y"}), IsEmpty());
  EXPECT_THAT(errors({"bus.code.draft=[\"tcp://127.0.0.1:5600\"]"}),
              ElementsAre(HasSubstr("model code: memory.start is true, and the last entry of "
                                    "bus.draft is no ipc:// name with {id}")));
  EXPECT_THAT(errors({"model.chat-memory.target=/z"}),
              ElementsAre(HasSubstr("[model.chat-memory] has the name of the memory of "
                                    "[model.chat]")));
}

TEST_F(ModelsTest, WithAMemoryOfTextsThatRequestsDoNotUseAreWarnedOf) {
  const auto warnings = [&](const std::string& text, std::vector<std::string> settings) {
    settings.push_back("memory.start=true");
    const auto loaded = load(text, {}, settings);
    EXPECT_THAT(loaded.errors, IsEmpty());
    return warnings_about(loaded);
  };
  EXPECT_THAT(warnings("", {}), IsEmpty());
  EXPECT_THAT(warnings("", {"speculation.proposer=memory"}), IsEmpty());
  EXPECT_THAT(warnings("", {"speculation.proposer=none"}),
              ElementsAre(HasSubstr("speculation.proposer is none")));
  EXPECT_THAT(
      warnings("", {"speculation.proposer=draft,ngram"}),
      ElementsAre(StartsWith("memory.start is true, but speculation.proposer is draft, ngram: only "
                             "requests")));
  EXPECT_THAT(warnings(kTwo, {"speculation.code.proposer=ngram"}),
              ElementsAre(StartsWith("model code: memory.start is true")));
  EXPECT_THAT(warnings_about(load("[speculation]\nproposer = \"ngram\"\n")), IsEmpty());
}

// What --print-config prints is a configuration with the same values.
TEST_F(ConfigTest, PrintsWhatItWouldRead) {
  const auto first = load("[model]\nalias = [\"a \\\"b\\\"\"]\n[log]\nlevel = \"debug\"\n", {},
                          {"kv_cache.memory=2GiB"});
  ASSERT_THAT(first.errors, IsEmpty());
  const auto second = load(print_config(first));
  EXPECT_THAT(second.errors, IsEmpty());
  EXPECT_EQ(second.config.model.alias, first.config.model.alias);
  EXPECT_EQ(second.config.kv_cache.memory, "2GiB");
  EXPECT_THAT(print_config(first), HasSubstr("# flag"));
}

TEST_F(ConfigTest, DefaultFileSaysTheDefaults) {
  const auto loaded = load(default_config_toml());
  EXPECT_THAT(loaded.errors, IsEmpty());
  LoadedConfig read;
  read.config = loaded.config;
  EXPECT_EQ(print_config(read), print_config(LoadedConfig{}));
}

TEST_F(ConfigTest, WeightsOfTenantsAreNamesAndNumbers) {
  const auto good = load("[limits]\ntenant_weights = [\"gold=4\", \"a=b=0.5\"]\n");
  EXPECT_THAT(good.errors, IsEmpty());
  const auto weights = weights_of(good.config.limits.tenant_weights);
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ((std::map<std::string, double>{{"gold", 4}, {"a=b", 0.5}}), *weights);
  for (const char* bad :
       {"gold", "gold=", "=2", "gold=0", "gold=-1", "gold=101", "gold=nan", "gold=2x"}) {
    const auto errors = load("[limits]\ntenant_weights = [\"" + std::string(bad) + "\"]\n").errors;
    ASSERT_EQ(1u, errors.size()) << bad;
    EXPECT_THAT(errors[0],
                HasSubstr("tenant_weights has \"" + std::string(bad) + "\"; each must be"));
  }
  const auto twice = load("[limits]\ntenant_weights = [\"a=1\", \"a=2\"]\n").errors;
  ASSERT_EQ(1u, twice.size());
  EXPECT_THAT(twice[0], HasSubstr("names \"a\" twice"));
}

TEST_F(ConfigTest, EveryShippedConfigurationIsGood) {
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(FORETOKEN_SOURCE_DIR) + "/configs")) {
    if (entry.path().extension() != ".toml") continue;
    EXPECT_THAT(load_config({entry.path().string(), {}, {}}).errors, IsEmpty());
  }
}

TEST_F(ConfigTest, EachOfAListOfChoicesIsOneOfThem) {
  EXPECT_THAT(load("[metrics]\ncompat = [\"vllm\"]\n").config.metrics.compat, ElementsAre("vllm"));
  EXPECT_THAT(load("[metrics]\ncompat = [\"vllm\", \"vlm\"]\n").errors,
              ElementsAre(AllOf(HasSubstr("metrics.compat has \"vlm\"; it must be one of: vllm"),
                                HasSubstr("did you mean \"vllm\""))));
}

TEST(ConfigPages, DefaultFileIsTheListing) {
  test::expect_page("configs/foretoken.toml", default_config_toml());
}
TEST(ConfigPages, ReferenceIsTheListing) {
  test::expect_page("docs/reference/configuration.md", configuration_page());
}
TEST(ConfigPages, SchemaIsTheListing) {
  test::expect_page("configs/foretoken.schema.json", configuration_schema());
}

TEST_F(ConfigTest, NamesWhatIsWrongWithAListOfDevices) {
  EXPECT_THAT(load("[draft]\ndevice = \"cuda:0,0\"\ntensor_parallel = 2\n").errors,
              ElementsAre(AllOf(HasSubstr("draft.device"), HasSubstr("device 0 is there twice"))));
  for (const char* bad : {"gpu", "CUDA", "cuda:", "cuda:x", "cuda:0,", "cuda:,1", "cuda:-1",
                          "cuda:0, 1", "cuda:1000", "cuda:0;1", "cpu:0", ""})
    EXPECT_THAT(load(std::string("[target]\ndevice = \"") + bad + "\"\n").errors,
                ElementsAre(HasSubstr("it must be cpu, cuda, or cuda: and numbers")))
        << bad;
}

// The device, or the sentence that refuses it.
std::string device_of(const std::string& configured, const DeviceView& view) {
  try {
    return rank_device(configured, "target.device", view);
  } catch (const FatalError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
}

TEST(RankDevice, IsTheEntryOfTheRankAmongThoseOfItsHost) {
  EXPECT_EQ(device_of("cpu", {1, 2}), "cpu");
  EXPECT_EQ(device_of("cuda", {0, 1}), "cuda:0");
  EXPECT_EQ(device_of("cuda", {3, 4}), "cuda:3");
  EXPECT_EQ(device_of("cuda:5", {0, 1}), "cuda:5");
  EXPECT_EQ(device_of("cuda:4,2", {0, 2}), "cuda:4");
  EXPECT_EQ(device_of("cuda:4,2", {1, 2}), "cuda:2");
  EXPECT_EQ(device_of("cuda:4,2", {0, 1}), "cuda:4");  // fewer on this host
  EXPECT_EQ(
      device_of("cuda:4,2", {1, 3}),
      "target.device is \"cuda:4,2\", 2 devices, and 3 ranks run on this host: each needs its own");
}

TEST(RankDevice, IsTheOnlyOneWhereTheLauncherShowsEachRankOneOfItsOwn) {
  for (int index = 0; index < 4; ++index) EXPECT_EQ(device_of("cuda", {index, 4, 1}), "cuda:0");
  EXPECT_EQ(device_of("cuda", {3, 4, 4}), "cuda:3");  // all are shown to all
  EXPECT_EQ(device_of("cuda", {3, 4, 8}), "cuda:3");
  EXPECT_EQ(device_of("cuda:0", {0, 1, 1}), "cuda:0");
}

TEST(RankDevice, IsRefusedWhereFewerAreShown) {
  EXPECT_EQ(device_of("cuda", {0, 4, 2}),
            "target.device is \"cuda\", 4 ranks run on this host and 2 devices are shown "
            "(CUDA_VISIBLE_DEVICES): each rank needs its own");
  EXPECT_EQ(device_of("cuda", {0, 1, 0}),
            "target.device is \"cuda\", 1 rank runs on this host and 0 devices are shown "
            "(CUDA_VISIBLE_DEVICES): each rank needs its own");
  // A list means what it says: no rank of these is silently given another's device.
  for (int index : {0, 1})
    EXPECT_EQ(
        device_of("cuda:0,1", {index, 2, 1}),
        "target.device is \"cuda:0,1\", and 1 device is shown (CUDA_VISIBLE_DEVICES): numbers "
        "begin at 0, there is no 1; where each rank is shown a device of its own, it must be "
        "\"cuda\"");
  EXPECT_EQ(device_of("cuda:0,1", {0, 1, 1}), "cuda:0");  // the other is not taken
  EXPECT_EQ(device_of("cuda:4,2", {1, 2, 5}), "cuda:2");
  EXPECT_THAT(device_of("cuda:4,2", {1, 2, 4}), HasSubstr("there is no 4"));
}

TEST(RankDevice, RanksThatSeeTheSameOneDeviceHaveNotOneEach) {
  EXPECT_THROW(check_devices("cuda", "draft.device", 2, 1), FatalError);
  EXPECT_THROW(check_devices("cuda:0", "draft.device", 2, std::nullopt), FatalError);
  check_devices("cuda", "draft.device", 2, 2);
  check_devices("cuda", "draft.device", 2, std::nullopt);
  check_devices("cuda:1,0", "draft.device", 2, 2);
  check_devices("cpu", "draft.device", 2, 0);
}

TEST(VisibleDevices, AreCountedAsCudaCountsThem) {
  EXPECT_EQ(visible_devices(nullptr), std::nullopt);
  EXPECT_EQ(visible_devices("0"), 1);
  EXPECT_EQ(visible_devices("7"), 1);
  EXPECT_EQ(visible_devices("3,1"), 2);
  EXPECT_EQ(visible_devices("0, 1,2"), 3);
  EXPECT_EQ(visible_devices("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"), 1);
  EXPECT_EQ(visible_devices("MIG-a,GPU-b"), 2);
  EXPECT_EQ(visible_devices("0,1,-1,2"), 2);  // it reads no further
  for (const char* none : {"", "-1", "NoDevFiles", "none", ",0", " "})
    EXPECT_EQ(visible_devices(none), 0) << none;
}

TEST_F(ConfigTest, TakesACacheSizeInTokens) {
  EXPECT_THAT(
      load("[kv_cache]\nmemory = \"56000 tokens\"\n[draft]\nmemory = \"1 tokens\"\n").errors,
      IsEmpty());
  for (const char* bad : {"0 tokens", "-1 tokens", "tokens", "5tokens", "1.5 tokens", "5 token"})
    EXPECT_THAT(load(std::string("[kv_cache]\nmemory = \"") + bad + "\"\n").errors,
                ElementsAre(HasSubstr("a number of tokens such as")))
        << bad;
}

TEST(MemoryBytes, ReadsSharesAndAmounts) {
  EXPECT_EQ(*memory_bytes("50%", 1000), 500u);
  EXPECT_EQ(*memory_bytes("8GiB", 0), std::uint64_t{8} << 30);
  EXPECT_EQ(*memory_bytes("1.5MiB", 0), 1572864u);
  for (const char* bad :
       {"", "%", "0%", "96%", "-1GiB", "8", "8GB", "8 GiB", "nan%", "inf%", "infGiB", "1e9TiB"})
    EXPECT_FALSE(memory_bytes(bad, 1000).ok()) << bad;
}

std::string repeated(const std::string& text, std::size_t n) {
  std::string all;
  while (n-- > 0) all += text;
  return all;
}

TEST_F(ConfigTest, RefusesAFileLargerThanItsLimit) {
  const std::string head = "[model]\nname = \"x\"\n#";
  EXPECT_THAT(load(head + std::string(65536 - head.size(), 'x')).errors, IsEmpty());
  EXPECT_THAT(load(head + std::string(65537 - head.size(), 'x')).errors,
              ElementsAre(HasSubstr("f.toml: larger than 64 KiB")));
}

// The parser calls itself for each: thousands would overflow the stack.
TEST_F(ConfigTest, RefusesMoreBracketsThanItsLimit) {
  for (const std::string open : {"[", "{a=", "[{a=", "[ # ]\n", "[\"]\",\n", "[]',\n"})
    EXPECT_THAT(load("[model]\nname = \"x\"\na=" + repeated(open, 5000)).errors,
                ElementsAre(HasSubstr("opening brackets; the limit is 256")))
        << open;
  EXPECT_THAT(load(repeated("[", 300)).errors,
              ElementsAre(HasSubstr("f.toml: has 300 opening brackets; the limit is 256")));
}

TEST_F(ConfigTest, NestingIsReadUpToItsLimits) {
  const auto brackets = [&](std::size_t n) {
    return load("[model]\nname=" + repeated("[", n - 1) + repeated("]", n - 1)).errors;
  };
  EXPECT_THAT(brackets(256), ElementsAre(HasSubstr("model.name must be a boolean")));
  EXPECT_THAT(brackets(257), ElementsAre(HasSubstr("f.toml: has 257 opening brackets")));
  const auto tables = [&](std::size_t n) {
    return load("[model]\nname=" + repeated("{a=", n - 1) + "1" + repeated("}", n - 1)).errors;
  };
  const auto neither_is_a_value = ElementsAre(HasSubstr("model.name.a must be a boolean"),
                                              HasSubstr("model.name must be a boolean"));
  EXPECT_THAT(tables(256), neither_is_a_value);
  EXPECT_THAT(load("[model]\nname" + repeated(".a", 1000) + "=1").errors, neither_is_a_value);
}

TEST_F(ConfigTest, ManyTablesNumbersAndTimesSideBySideAreNotNested) {
  const std::string tables = repeated("[[a.b]]\nx = 1.5\n[a.b.c]\ny = 07:32:00.5\n", 20);
  const std::string list = "z = [" + repeated("1.5, [2.5], {a.b = 3.5},\n", 20) + "]\n";
  EXPECT_THAT(load(tables + list).errors, ElementsAre(HasSubstr("a.b must be a boolean")));
}

// A variable of the process, and what it was before.
class WithVariable {
 public:
  WithVariable(const char* name, const char* value) : name_(name) {
    if (const char* before = ::getenv(name)) before_ = before;
    if (value == nullptr)
      ::unsetenv(name);
    else
      ::setenv(name, value, 1);
  }
  ~WithVariable() {
    if (before_)
      ::setenv(name_, before_->c_str(), 1);
    else
      ::unsetenv(name_);
  }
  WithVariable(const WithVariable&) = delete;
  WithVariable& operator=(const WithVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST_F(ConfigTest, PackedWeightsAreKeptInTheUsersCacheFolder) {
  const ModelSection model;
  const WithVariable home("HOME", nullptr), xdg("XDG_CACHE_HOME", nullptr),
      service("CACHE_DIRECTORY", nullptr);
  EXPECT_EQ(packed_cache_folder(model), "");
  const WithVariable own("HOME", "/home/a");
  EXPECT_EQ(packed_cache_folder(model), "/home/a/.cache/foretoken");
  const WithVariable cache("XDG_CACHE_HOME", "/cache");
  EXPECT_EQ(packed_cache_folder(model), "/cache/foretoken");
  const WithVariable unit("CACHE_DIRECTORY", "/var/cache/foretoken:/var/cache/other");
  EXPECT_EQ(packed_cache_folder(model), "/var/cache/foretoken");
  EXPECT_EQ(packed_cache_folder({.packed_cache = "/srv/packed"}), "/srv/packed");
  EXPECT_EQ(packed_cache_folder({.packed_cache = "off"}), "");
  const WithVariable not_full("XDG_CACHE_HOME", "cache"), no_unit("CACHE_DIRECTORY", nullptr);
  EXPECT_EQ(packed_cache_folder(model), "/home/a/.cache/foretoken");
  for (const char* word : {"OFF", "off ", "~/x", "cache", ""})
    EXPECT_THAT(load("", {}, {std::string("model.packed_cache=") + word}).errors,
                ElementsAre(AllOf(HasSubstr("model.packed_cache is \""),
                                  HasSubstr("auto, off or the full path"))));
}

TEST_F(ConfigTest, ResolvesEndpoints) {
  BusSection bus;
  bus.runtime_dir = folder_.string();
  EXPECT_EQ(router_endpoint(bus), "ipc://" + folder_.string() + "/router");
  EXPECT_EQ(client_endpoint(bus), "tcp://127.0.0.1:5555");
  EXPECT_EQ(draft_endpoint(bus, "3"), "ipc://" + folder_.string() + "/draft-3");
  bus.draft = {"tcp://10.0.0.1:1", "ipc:///x/draft"};
  EXPECT_EQ(draft_endpoint(bus, "0"), "tcp://10.0.0.1:1");
  EXPECT_EQ(draft_endpoint(bus, "1"), "ipc:///x/draft");
  EXPECT_THROW(draft_endpoint(bus, "2"), FatalError);
  EXPECT_THROW(draft_endpoint(bus, "blue"), FatalError);
  bus.draft = {"tcp://10.0.0.1:1"};
  EXPECT_EQ(draft_endpoint(bus, "8b-0"), "tcp://10.0.0.1:1");  // a name, and not the number 8
}

TEST_F(ConfigTest, MakesTheRuntimeFolderForThisUserOnly) {
  BusSection bus;
  bus.runtime_dir = (folder_ / "a/b").string();
  EXPECT_EQ(runtime_directory(bus), bus.runtime_dir);
  EXPECT_EQ(std::filesystem::status(bus.runtime_dir).permissions() & std::filesystem::perms::all,
            std::filesystem::perms::owner_all);
  bus.runtime_dir = write("plain", "a-file");
  EXPECT_THROW(runtime_directory(bus), FatalError);
}

// Another folder for each directory that a command is called in, and no address for libsystemd.
TEST_F(ConfigTest, ARuntimeFolderIsAFullPath) {
  for (const std::string folder : {"second", "./second", "~/second"})
    EXPECT_THAT(load("", {}, {"bus.runtime_dir=" + folder}).errors,
                ElementsAre(AllOf(HasSubstr("bus.runtime_dir is \"" + folder + "\""),
                                  HasSubstr("the full path of a folder"))));
  EXPECT_THAT(load("", {}, {"bus.runtime_dir=/run/foretoken"}).errors, IsEmpty());
  const WithVariable unit("RUNTIME_DIRECTORY", "second"), session("XDG_RUNTIME_DIR", ".");
  EXPECT_THAT(runtime_directory({}), StartsWith("/tmp/foretoken-"));
}

TEST_F(ConfigTest, RefusesARuntimeFolderThatOthersCouldChange) {
  namespace fs = std::filesystem;
  const auto refusal = [](const fs::path& dir) -> std::string {
    BusSection bus;
    bus.runtime_dir = dir.string();
    try {
      runtime_directory(bus);
    } catch (const FatalError& error) {
      return error.what();
    }
    return "";
  };
  const fs::path open = folder_ / "open";
  fs::create_directory(open);
  for (const auto& [mode, shown] :
       {std::pair{0777u, "mode 0777"}, {0770u, "mode 0770"}, {01777u, "mode 1777"}}) {
    ASSERT_EQ(::chmod(open.c_str(), mode), 0);
    EXPECT_THAT(refusal(open), HasSubstr(shown));
  }
  ASSERT_EQ(::chmod(open.c_str(), 0755), 0);
  EXPECT_EQ(refusal(open), "");
  fs::create_symlink(open, folder_ / "mine");
  EXPECT_EQ(refusal(folder_ / "mine"), "");
  fs::create_symlink(folder_ / "nothing", folder_ / "dangling");
  EXPECT_NE(refusal(folder_ / "dangling"), "");
  ASSERT_EQ(::chmod(open.c_str(), 0777), 0);
  EXPECT_THAT(refusal(folder_ / "mine"), HasSubstr("mode 0777"));
  ASSERT_EQ(::chmod(open.c_str(), 0700), 0);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  ASSERT_EQ(::chown(open.c_str(), 4321, 4321), 0);
  EXPECT_THAT(refusal(folder_ / "mine"),
              HasSubstr("is a link to a folder that belongs to another user"));
  EXPECT_THAT(refusal(open), HasSubstr("belongs to another user"));
}

TEST(NameOfFolder, IsTheLastPartOfItsPathHoweverThatIsWritten) {
  for (const char* folder :
       {"models/small", "models/small/", "models/small/.", "models/small/x/.."})
    EXPECT_EQ(name_of_folder(folder), "small") << folder;
  const auto here = std::filesystem::current_path();
  EXPECT_EQ(name_of_folder("."), here.filename().string());
  EXPECT_EQ(name_of_folder(".."), here.parent_path().filename().string());
  EXPECT_EQ(name_of_folder(""), "");
}

TEST(ServedModelName, IsTheFoldersUnlessNamed) {
  EXPECT_EQ(served_model_name({}), "demo");
  EXPECT_EQ(served_model_name({.target = "models/Qwen2.5-7B/"}), "Qwen2.5-7B");
  EXPECT_EQ(served_model_name({.target = "x", .name = "mine"}), "mine");
}

TEST(Nearest, KnowsWhenNothingIsNear) {
  EXPECT_EQ(nearest("temprature", {"temperature", "top_p"}), "temperature");
  EXPECT_EQ(nearest("zzz", {"temperature", "top_p"}), std::nullopt);
  EXPECT_EQ(nearest("foo", {"op", "stop"}), std::nullopt);
  EXPECT_EQ(nearest("pp", {"up", "ps"}), "up");
}

}  // namespace
}  // namespace foretoken
