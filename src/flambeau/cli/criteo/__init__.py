"""`flambeau criteo`: from raw click logs to a trained model and its predictions, in stages."""
