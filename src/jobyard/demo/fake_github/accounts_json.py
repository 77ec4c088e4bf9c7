"""JSON of accounts, repositories, groups, installations and hooks, as the REST API and webhooks show them."""

from __future__ import annotations

from datetime import UTC, datetime

from jobyard.demo.fake_github.entities import PERMISSIONS, App, Hook, Installation, Owner, Repository, RunnerGroup

Json = dict[str, object]

# Link templates of a repository, by their last part.
REPOSITORY_LINKS = {
    "archive_url": "/{archive_format}{/ref}",
    "assignees_url": "/assignees{/user}",
    "blobs_url": "/git/blobs{/sha}",
    "branches_url": "/branches{/branch}",
    "collaborators_url": "/collaborators{/collaborator}",
    "comments_url": "/comments{/number}",
    "commits_url": "/commits{/sha}",
    "compare_url": "/compare/{base}...{head}",
    "contents_url": "/contents/{+path}",
    "contributors_url": "/contributors",
    "deployments_url": "/deployments",
    "downloads_url": "/downloads",
    "events_url": "/events",
    "forks_url": "/forks",
    "git_commits_url": "/git/commits{/sha}",
    "git_refs_url": "/git/refs{/sha}",
    "git_tags_url": "/git/tags{/sha}",
    "hooks_url": "/hooks",
    "issue_comment_url": "/issues/comments{/number}",
    "issue_events_url": "/issues/events{/number}",
    "issues_url": "/issues{/number}",
    "keys_url": "/keys{/key_id}",
    "labels_url": "/labels{/name}",
    "languages_url": "/languages",
    "merges_url": "/merges",
    "milestones_url": "/milestones{/number}",
    "notifications_url": "/notifications{?since,all,participating}",
    "pulls_url": "/pulls{/number}",
    "releases_url": "/releases{/id}",
    "stargazers_url": "/stargazers",
    "statuses_url": "/statuses/{sha}",
    "subscribers_url": "/subscribers",
    "subscription_url": "/subscription",
    "tags_url": "/tags",
    "teams_url": "/teams",
    "trees_url": "/git/trees{/sha}",
}
USER_LINKS = {
    "events_url": "/events{/privacy}",
    "followers_url": "/followers",
    "following_url": "/following{/other_user}",
    "gists_url": "/gists{/gist_id}",
    "organizations_url": "/orgs",
    "received_events_url": "/received_events",
    "repos_url": "/repos",
    "starred_url": "/starred{/owner}{/repo}",
    "subscriptions_url": "/subscriptions",
}


def timestamp(seconds: float) -> str:
    """
    >>> timestamp(0.9)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node_id(kind: str, number: int) -> str:
    return f"{kind}_{number:08x}"


class AccountsJson:
    """Builds the objects; every link starts with the address of this GitHub."""

    def __init__(self, host: str) -> None:
        self.html = f"https://{host}"
        self.api = f"{self.html}/api/v3"

    def user(self, login: str, number: int, kind: str = "User") -> Json:
        url = f"{self.api}/users/{login}"
        return {
            "login": login,
            "id": number,
            "node_id": node_id("U" if kind == "User" else "O", number),
            "avatar_url": f"{self.html}/avatars/u/{number}?",
            "gravatar_id": "",
            "url": url,
            "html_url": f"{self.html}/{login}",
            **{name: url + path for name, path in USER_LINKS.items()},
            "type": kind,
            "site_admin": False,
        }

    def owner(self, owner: Owner) -> Json:
        return self.user(owner.login, owner.id, owner.type)

    def sender(self) -> Json:
        return self.user("octo-developer", 21)

    def organization(self, owner: Owner) -> Json:
        url = f"{self.api}/orgs/{owner.login}"
        return {
            "login": owner.login,
            "id": owner.id,
            "node_id": node_id("O", owner.id),
            "url": url,
            "repos_url": f"{url}/repos",
            "events_url": f"{url}/events",
            "hooks_url": f"{url}/hooks",
            "issues_url": f"{url}/issues",
            "members_url": f"{url}/members{{/member}}",
            "public_members_url": f"{url}/public_members{{/member}}",
            "avatar_url": f"{self.html}/avatars/u/{owner.id}?",
            "description": None,
        }

    def minimal_repository(self, repository: Repository) -> Json:
        url = f"{self.api}/repos/{repository.full_name}"
        return {
            "id": repository.id,
            "node_id": node_id("R", repository.id),
            "name": repository.name,
            "full_name": repository.full_name,
            "private": repository.private,
            "owner": self.owner(repository.owner),
            "html_url": f"{self.html}/{repository.full_name}",
            "description": None,
            "fork": False,
            "url": url,
            **{name: url + path for name, path in REPOSITORY_LINKS.items()},
        }

    def repository(self, repository: Repository) -> Json:
        html = f"{self.html}/{repository.full_name}"
        at = timestamp(repository.created_at)
        host = self.html.removeprefix("https://")
        return {
            **self.minimal_repository(repository),
            "created_at": at,
            "updated_at": at,
            "pushed_at": at,
            "git_url": f"git://{host}/{repository.full_name}.git",
            "ssh_url": f"git@{host}:{repository.full_name}.git",
            "clone_url": f"{html}.git",
            "svn_url": html,
            "homepage": None,
            "size": 1,
            "stargazers_count": 0,
            "watchers_count": 0,
            "language": None,
            "has_issues": True,
            "has_projects": True,
            "has_downloads": True,
            "has_wiki": True,
            "has_pages": False,
            "has_discussions": False,
            "forks_count": 0,
            "mirror_url": None,
            "archived": False,
            "disabled": False,
            "open_issues_count": 0,
            "license": None,
            "allow_forking": True,
            "is_template": False,
            "web_commit_signoff_required": False,
            "topics": [],
            "visibility": "private" if repository.private else "public",
            "forks": 0,
            "open_issues": 0,
            "watchers": 0,
            "default_branch": "main",
        }

    def group(self, owner: Owner, group: RunnerGroup) -> Json:
        url = f"{self.api}/orgs/{owner.login}/actions/runner-groups/{group.id}"
        body: Json = {
            "id": group.id,
            "name": group.name,
            "visibility": group.visibility,
            "default": group.default,
            "runners_url": f"{url}/runners",
            "inherited": group.inherited,
            "allows_public_repositories": group.allows_public_repositories,
            "restricted_to_workflows": False,
            "selected_workflows": [],
            "workflow_restrictions_read_only": group.inherited,
        }
        if group.visibility == "selected":
            body["selected_repositories_url"] = f"{url}/repositories"
        return body

    def installation(self, app: App, installation: Installation) -> Json:
        url = f"{self.api}/app/installations/{installation.id}"
        at = timestamp(installation.created_at)
        settings = f"{self.html}/organizations/{installation.owner.login}/settings"
        return {
            "id": installation.id,
            "client_id": app.client_id,
            "account": self.owner(installation.owner),
            "repository_selection": "all",
            "access_tokens_url": f"{url}/access_tokens",
            "repositories_url": f"{self.api}/installation/repositories",
            "html_url": f"{settings}/installations/{installation.id}",
            "app_id": app.id,
            "app_slug": app.slug,
            "target_id": installation.owner.id,
            "target_type": installation.owner.type,
            "permissions": dict(installation.permissions),
            "events": ["workflow_job"],
            "created_at": at,
            "updated_at": at,
            "single_file_name": None,
            "has_multiple_single_files": False,
            "single_file_paths": [],
            "suspended_by": None,
            "suspended_at": None,
        }

    def app(self, app: App, installations: int) -> Json:
        at = timestamp(app.created_at)
        return {
            "id": app.id,
            "client_id": app.client_id,
            "slug": app.slug,
            "node_id": node_id("A", app.id),
            "owner": self.user("octo-admin", 1),
            "name": app.slug,
            "description": "",
            "external_url": self.html,
            "html_url": f"{self.html}/github-apps/{app.slug}",
            "created_at": at,
            "updated_at": at,
            "permissions": dict(PERMISSIONS),
            "events": ["workflow_job"],
            "installations_count": installations,
        }

    def hook(self, hook: Hook) -> Json:
        """A hook of an organization. The secret is masked as GitHub does."""
        account = hook.owner.login if hook.owner else ""
        url = f"{self.api}/orgs/{account}/hooks/{hook.id}"
        at = timestamp(hook.created_at)
        return {
            "type": {"organization": "Organization", "repository": "Repository", "app": "App"}[hook.scope],
            "id": hook.id,
            "name": "web",
            "active": hook.active,
            "events": list(hook.events),
            "config": {
                "url": hook.url,
                "content_type": hook.content_type,
                "insecure_ssl": "0",
                "secret": "********",
            },
            "updated_at": at,
            "created_at": at,
            "url": url,
            "ping_url": f"{url}/pings",
            "deliveries_url": f"{url}/deliveries",
        }
