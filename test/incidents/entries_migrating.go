package incidents

const migration = "internal/cli/arcmigration"

var aboutMigrating = []Incident{
	{
		ID: "two-scale-sets-of-one-name", Title: "Two scale sets of one name, for high availability, kept each other from working", Source: Peer,
		Report:    Report{URL: "https://github.com/actions/actions-runner-controller/issues/3351", Date: "2024-03-14"},
		Elsewhere: `A scale set of one name was installed twice, in two clusters or two runner groups. One listener held the session, and the other failed for ever.`,
		Here: `One pool serves its label in every group and organization, with several servers. The conversion refuses a second pool of a label, names the
			first, and exits with 1. Two pools that have a label in a cluster have the condition LabelConflict.`,
		Rules: []string{"CLAIM-12"},
		Shown: in(migration, "TestConvert_R4_TwoPoolsOfOneLabelAreRefused", "TestConvert_R4_ASharedLabelIsSaidOfBoth"),
	},
	{
		ID: "tracking-labels-copied", Title: "A tool's tracking labels were copied, and the tool pruned what had them", Source: Peer,
		Report:    Report{URL: "https://github.com/actions/actions-runner-controller/pull/3575", Date: "2024-06-05"},
		Elsewhere: `The controller copied all labels of a scale set to what it made for it. Argo CD knew its own label on objects that were in no source, and deleted them.`,
		Here:      `Labels and annotations by which Argo CD, Flux, Helm, kubectl and others know what they own are left out of what is converted, and each is in the report.`,
		Shown:     in(migration, "TestConvert_R8_OwnershipMarksAreDropped"),
	},
}
